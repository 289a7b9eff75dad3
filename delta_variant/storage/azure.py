"""Hadoop's ABFS → arguments of `pyarrow.fs.AzureFileSystem`.

Source: the settings that ABFS documents in Hadoop 3.5 (`ConfigurationKeys`). Names that end in the container and the account
take precedence, then names that end in the account. As for S3, settings that pyarrow supports are passed on, and settings that
decide identity, encryption or location and that pyarrow cannot follow are refused.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from delta_variant.storage.settings import Settings

_ABFS = "org.apache.hadoop.fs.azurebfs."
_LOGIN = "login.microsoftonline.com"
HONOURED = (
    "account.auth.type", "account.key", "sas.fixed.token", "account.oauth.provider.type", "account.oauth2.client.id",
    "account.oauth2.client.secret", "account.oauth2.client.endpoint",
)  # fmt: skip
_IDENTITY = "use an account key, a fixed SAS token, a client's secret or a managed identity"
_ENCRYPTION = "unset it and make the encryption that of the account"
# Name: the value that changes nothing and is allowed, and the advice in the message.
REFUSED = {
    "account.keyprovider": (f"{_ABFS}services.SimpleKeyProvider", _IDENTITY),
    "sas.token.provider.type": ("", _IDENTITY),
    "enable.delegation.token": ("false", _IDENTITY),
    "delegation.token.provider.type": ("", _IDENTITY),
    "account.oauth2.msi.endpoint": ("", "use the endpoint of the machine"),
    "encryption.encoded.client-provided-key": ("", _ENCRYPTION),
    "encryption.encoded.client-provided-key-sha": ("", _ENCRYPTION),
    "encryption.context.provider.type": ("", _ENCRYPTION),
    "abfs.endpoint": ("", "name the account's own host in the location"),
}
# Without effect here: settings of other accounts, those that are read only with a type that is refused, those of the driver for
# wasb:, and those for the identities that ABFS shows.
_WITHOUT_MEANING = (
    *(f"{name}.*" for name in (*HONOURED, *REFUSED)), "account.oauth2.*", "oauth.token.fetch.*", "custom.token.fetch.*",
    "sas.token.renew.period.for.streams", "sas.expiry.period", "local.sas.key.mode", "saskey.*", "secure.mode",
    "authorization*", "identity.transformer.*", "metrics.*", "shellkeyprovider.script",
)  # fmt: skip
_SENSITIVE = re.compile(r"encrypt|credential|secret|token|passw|\bauth|oauth|identity|delegation|\bsas|keyprovider|proxy")


def options(account: str, settings: Settings) -> dict[str, Any]:
    """The arguments of AzureFileSystem. account: the host of the account, such as acct.dfs.core.windows.net."""
    settings.refuse(REFUSED)
    settings.refuse_unknown((*HONOURED, *REFUSED, *_WITHOUT_MEANING), _SENSITIVE, "unset it, for this account at least")
    name, _, authority = account.partition(".")
    chosen = {"account_name": name, **_credentials(settings)}
    if authority and authority != "dfs.core.windows.net":  # another cloud
        chosen["dfs_storage_authority"] = "." + re.sub(r"\bblob\.", "dfs.", authority, count=1)
        chosen["blob_storage_authority"] = "." + re.sub(r"\bdfs\.", "blob.", authority, count=1)
    return chosen


def _credentials(settings: Settings) -> dict[str, Any]:
    auth_type = (settings.get("account.auth.type") or "").lower()
    key, token = settings.get("account.key"), settings.get("sas.fixed.token")
    if auth_type in ("", "sharedkey") and key:
        return {"account_key": key}
    if auth_type in ("", "sas") and token:
        return {"sas_token": token.removeprefix("?")}
    if auth_type in ("", "oauth"):
        return _oauth(settings)
    raise settings.refused("account.auth.type", _IDENTITY, shown=True)


def _oauth(settings: Settings) -> dict[str, Any]:
    """Arguments for OAuth. Without a provider: a client and its secret if both are set, else Azure's default credentials."""
    provider = (settings.get("account.oauth.provider.type") or "").removeprefix(f"{_ABFS}oauth2.")
    client, secret = settings.get("account.oauth2.client.id"), settings.get("account.oauth2.client.secret")
    if provider == "MsiTokenProvider":
        return {"client_id": client} if client else {}
    if provider not in ("", "ClientCredsTokenProvider"):
        raise settings.refused("account.oauth.provider.type", _IDENTITY, shown=True)
    if not client or not secret:
        return {}
    endpoint = urlsplit(settings.get("account.oauth2.client.endpoint") or "")
    if endpoint.hostname not in (None, _LOGIN):
        raise settings.refused("account.oauth2.client.endpoint", f"use {_LOGIN}")
    return {"client_id": client, "client_secret": secret, "tenant_id": "".join(endpoint.path.split("/")[1:2])}

"""Google's connectors for Hadoop → arguments of `pyarrow.fs.GcsFileSystem`.

Source: the settings of Hadoop's own connector (3.5) and of Google's (2 and 3), under `fs.gs.` or the older `google.cloud.`. As
for S3: what pyarrow can do is passed on, what decides identity, encryption, billing or place and cannot be followed is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from delta_variant.storage.settings import Settings

HONOURED = ("auth.type", "auth.impersonation.service.account", "storage.root.url")
_DEFAULT = (
    "let GOOGLE_APPLICATION_CREDENTIALS name the file in the environment of the driver and the executors, with "
    "fs.gs.auth.type = APPLICATION_DEFAULT"
)
_KEY_FILES = {
    f"auth.service.account.{name}": ("", _DEFAULT)
    for name in ("json.keyfile", "keyfile", "email", "private.key", "private.key.id")
} | {"auth.service.account.enable": ("true", _DEFAULT)}  # fmt: skip
_ENCRYPTION = "unset it and make the encryption the default of the bucket"
# name: the value that changes nothing, and the way out
REFUSED = {
    "auth.access.token.provider": ("", _DEFAULT),
    "auth.access.token.provider.impl": ("", _DEFAULT),
    "auth.null.enable": ("false", "set fs.gs.auth.type to UNAUTHENTICATED"),
    "delegation.token.binding": ("", _DEFAULT),
    "authorization.handler.impl": ("", "unset it"),
    "token.server.url": ("", "unset it"),
    "encryption.algorithm": ("", _ENCRYPTION),
    "encryption.key": ("", _ENCRYPTION),
    "encryption.key.hash": ("", _ENCRYPTION),
    "proxy.address": ("", "unset it"),
    "proxy.username": ("", "unset it"),
    "proxy.password": ("", "unset it"),
    "requester.pays.mode": ("disabled", "write to a bucket whose owner pays"),
    "requester.pays.project.id": ("", "write to a bucket whose owner pays"),
}
# What the connectors read only together with a type that is refused.
_WITHOUT_MEANING = ("auth.client.id", "auth.client.secret", "auth.refresh.token", "auth.workload.identity.*")
_SENSITIVE = re.compile(
    r"encrypt|credential|secret|token|passw|\bauth|identity|impersonation|delegation|requester|proxy|headers"
)


def options(settings: Settings) -> dict[str, Any]:
    """Arguments of GcsFileSystem."""
    kind = (settings.get("auth.type") or "").upper()
    if kind not in ("", "COMPUTE_ENGINE", "APPLICATION_DEFAULT", "UNAUTHENTICATED"):
        raise settings.refused("auth.type", _DEFAULT, shown=True)
    refused = REFUSED if kind in ("APPLICATION_DEFAULT", "UNAUTHENTICATED") else {**REFUSED, **_KEY_FILES}
    settings.refuse(refused)
    settings.refuse_unknown((*HONOURED, *REFUSED, *_KEY_FILES, *_WITHOUT_MEANING), _SENSITIVE, "unset it")
    chosen: dict[str, Any] = {}
    if kind == "UNAUTHENTICATED":
        chosen["anonymous"] = True
    account = settings.get("auth.impersonation.service.account")
    if account:
        chosen["target_service_account"] = account
    endpoint = settings.get("storage.root.url")
    if endpoint:
        parts = urlsplit(endpoint)
        chosen |= {"endpoint_override": parts.netloc, "scheme": parts.scheme}
    return chosen

"""Google's connectors for Hadoop → arguments of `pyarrow.fs.GcsFileSystem`.

Source: the settings of Hadoop's own connector (3.5) and of Google's (2 and 3), under `fs.gs.` or the older `google.cloud.`. As
for S3, settings that pyarrow supports are passed on, and settings that decide identity, encryption, billing or location and
that pyarrow cannot follow are refused.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

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
# Name: the value that changes nothing and is allowed, and the advice in the message.
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
# Without effect here: the connectors read these only with a type that is refused.
_WITHOUT_MEANING = ("auth.client.id", "auth.client.secret", "auth.refresh.token", "auth.workload.identity.*")
_SENSITIVE = re.compile(
    r"encrypt|credential|secret|token|passw|\bauth|identity|impersonation|delegation|requester|proxy|headers"
)


def options(settings: Settings) -> dict[str, Any]:
    """The arguments of GcsFileSystem. Raises UnsupportedFeatureError for settings that it cannot follow."""
    auth_type = (settings.get("auth.type") or "").upper()
    if auth_type not in ("", "COMPUTE_ENGINE", "APPLICATION_DEFAULT", "UNAUTHENTICATED"):
        raise settings.refused("auth.type", _DEFAULT, shown=True)
    refused = REFUSED if auth_type in ("APPLICATION_DEFAULT", "UNAUTHENTICATED") else {**REFUSED, **_KEY_FILES}
    settings.refuse(refused)
    settings.refuse_unknown((*HONOURED, *REFUSED, *_KEY_FILES, *_WITHOUT_MEANING), _SENSITIVE, "unset it")
    chosen: dict[str, Any] = {}
    if auth_type == "UNAUTHENTICATED":
        chosen["anonymous"] = True
    account = settings.get("auth.impersonation.service.account")
    if account:
        chosen["target_service_account"] = account
    endpoint = settings.get("storage.root.url")
    if endpoint:
        parts = urlsplit(endpoint)
        chosen |= {"endpoint_override": parts.netloc, "scheme": parts.scheme}
    return chosen

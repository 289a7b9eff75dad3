"""What a table requires of its writers: the protocol and the metadata, in Delta's JSON → one frozen object.

Delta requires a writer to know every feature that the protocol lists (PROTOCOL.md, "Table Features"), and to follow it if the
metadata uses it. Each feature is handled by Delta's own code or by this package, or it is unknown and refused. Legacy protocols
(writer version below 7) list no features but imply some; those are listed first, so that one rule covers both.

Invariant: `check_writable` passes only tables whose every feature is handled, and runs before any file is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from delta_variant.constants import DEFAULTS, SETTINGS
from delta_variant.errors import TableError, UnsupportedFeatureError

SHREDDING_PROPERTY = "delta.enableVariantShredding"
DELTA_SETTINGS = SETTINGS | DEFAULTS
"""Delta's settings in an enabled session, and in the session of a write."""
SHREDDING_FEATURES = frozenset({"variantShredding", "variantShredding-preview"})
VARIANT_FEATURES = frozenset({"variantType", "variantType-preview"})
_MAPPING_MODE = "delta.columnMapping.mode"
WITH_SPARK = "write with DataFrame.write.format('delta') instead"
"""What works where `write` refuses a table."""

# PROTOCOL.md, "Writer Version Requirements": what each legacy version added.
_LEGACY = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
_TABLE_FEATURES_VERSION = 7

# Delta's commands handle these features, or `writer` does, in the files.
_HANDLED = (
    SHREDDING_FEATURES
    | VARIANT_FEATURES
    | {
        "allowColumnDefaults",
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "checkpointProtection",
        "clustering",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "icebergCompatV1",
        "icebergCompatV2",
        "icebergCompatV3",
        "identityColumns",
        "inCommitTimestamp",
        "invariants",
        "materializePartitionColumns",
        "rowTracking",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)


@dataclass(frozen=True)
class TableFeatures:
    """The protocol and the metadata of one version of a table."""

    table: str
    """The name of the table in messages."""
    names: frozenset[str]
    """Every feature that a writer must know, including those that a legacy protocol implies."""
    properties: Mapping[str, str]
    schema: Mapping[str, Any]
    """The table's schema in the JSON that Delta stores (PROTOCOL.md, "Schema Serialization Format")."""
    partition_by: tuple[str, ...]
    id: str
    """The unique id of the table."""

    @classmethod
    def from_json(cls, table: str, protocol: str, metadata: str) -> TableFeatures:
        """From the JSON of a Protocol action and of a Metadata action."""
        versions = json.loads(protocol)["protocol"]
        meta = json.loads(metadata)["metaData"]
        version = versions["minWriterVersion"]
        names = set(versions.get("writerFeatures") or ()) | set(versions.get("readerFeatures") or ())
        if version < _TABLE_FEATURES_VERSION:
            names.update(name for added, implied in _LEGACY.items() if added <= version for name in implied)
        return cls(
            table,
            frozenset(names),
            meta.get("configuration") or {},
            json.loads(meta.get("schemaString") or '{"type": "struct", "fields": []}'),
            tuple(meta.get("partitionColumns") or ()),
            meta["id"],
        )

    @property
    def mapping(self) -> str:
        """The mode of column mapping: none, id or name."""
        return self.properties.get(_MAPPING_MODE, "none").lower()

    @property
    def random_prefix(self) -> int:
        """The length of the names of random directories for files; 0 if files go to the directory of their partition."""
        randomized = self.mapping != "none" or _is_true(self.properties, "delta.randomizeFilePrefixes")
        return int(self.properties.get("delta.randomPrefixLength", "2")) if randomized else 0

    @property
    def shredding(self) -> bool:
        """Whether new files may be shredded: the property is exactly `true`, and the protocol has the feature."""
        return self.properties.get(SHREDDING_PROPERTY) == "true" and not self.names.isdisjoint(SHREDDING_FEATURES)

    @property
    def shredding_feature(self) -> str:
        """The name under which the table has the feature for shredding, or would get it: a preview's beside other previews.

        Delta 4.0 knows only the name of the preview, and gives it to all tables (`scala/Pairs.scala`).
        """
        is_preview = "variantType-preview" in self.names and "variantType" not in self.names
        return "variantShredding-preview" if is_preview or "variantShredding-preview" in self.names else "variantShredding"

    def check_shredding(self, advice: str = "") -> None:
        """Raises TableError if new files must not be shredded, and says what to switch on. advice: what else can be done."""
        if self.shredding:
            return
        value = self.properties.get(SHREDDING_PROPERTY)
        reason = "is not set" if value is None else f"is {value!r}"
        if value == "true":
            reason = "is 'true', but the protocol lacks the feature variantShredding"
        raise TableError(
            f"{self.table} must not hold shredded files: {SHREDDING_PROPERTY} {reason}. Switch it on with ALTER TABLE "
            f"{self.table} SET TBLPROPERTIES ('{SHREDDING_PROPERTY}' = 'true'){advice}"
        )

    def check_writable(self, *, overwrite: bool = False, operation: str = "delta_variant.write", instead: str = "") -> None:
        """Raises UnsupportedFeatureError for a feature that is not handled, TableError for overwriting an append-only table.

        overwrite: whether the write removes files. operation: its name in messages. instead: what does it without this package.
        """
        for name in sorted(self.names - _HANDLED):
            self._refuse(name, "is in the protocol", operation, instead or WITH_SPARK)
        if self.mapping not in ("none", "id", "name"):
            self._refuse("columnMapping", f"is in use ({_MAPPING_MODE} = {self.mapping})", operation, instead or WITH_SPARK)
        if overwrite and _is_true(self.properties, "delta.appendOnly"):
            raise TableError(
                f"{self.table} is append-only (delta.appendOnly = true) and cannot be overwritten: append to it, or set "
                "the property to false"
            )

    def check_new_bounds(self) -> None:
        """Raises UnsupportedFeatureError if the table must not get the feature that announces bounds in its statistics."""
        if self.names.isdisjoint(SHREDDING_FEATURES):
            self.check_no_iceberg("analyze", "call analyze(tags_only=True), which adds no table feature")

    def check_no_iceberg(self, operation: str, instead: str) -> None:
        """Raises UnsupportedFeatureError for IcebergCompat, which allows no VARIANT."""
        for name in ("icebergCompatV1", "icebergCompatV2", "icebergCompatV3"):
            key = f"delta.enableI{name[1:]}"
            if _is_true(self.properties, key):
                self._refuse(name, f"is in use ({key} = true)", operation, instead)

    def _refuse(self, feature: str, reason: str, operation: str, instead: str) -> None:
        raise UnsupportedFeatureError(
            f"the table feature {feature} of {self.table} {reason} and {operation} does not handle it yet: {instead}"
        )


def delta_settings(found: Callable[[str, None], str | None]) -> dict[str, str]:
    """SETTINGS, and those of DEFAULTS that a session lacks. found: looks up a setting of the session, with a default."""
    return SETTINGS | {key: value for key, value in DEFAULTS.items() if found(key, None) is None}


def _is_true(properties: Mapping[str, str], key: str) -> bool:
    return properties.get(key, "").lower() == "true"

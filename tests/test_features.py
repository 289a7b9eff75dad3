"""Table features: legacy protocols, listed features, features in use, and the property for shredding."""

from __future__ import annotations

import json
from typing import Any

import pytest

from delta_variant.errors import TableError, UnsupportedFeatureError
from delta_variant.features import SHREDDING_PROPERTY, TableFeatures


def table(
    *,
    versions: tuple[int, int] = (3, 7),
    features: tuple[str, ...] = (),
    columns: tuple[dict[str, Any], ...] = (),
    partition_by: tuple[str, ...] = (),
    **properties: str,
) -> TableFeatures:
    protocol: dict[str, Any] = {"minReaderVersion": versions[0], "minWriterVersion": versions[1]}
    if features:
        protocol |= {"readerFeatures": [], "writerFeatures": list(features)}
    fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}, *columns]
    metadata = {
        "id": "t",
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": list(partition_by),
        "configuration": {key.replace("__", "."): value for key, value in properties.items()},
    }
    return TableFeatures.from_json("t", json.dumps({"protocol": protocol}), json.dumps({"metaData": metadata}))


def column(**metadata: Any) -> dict[str, Any]:
    return {"name": "c", "type": "long", "nullable": True, "metadata": metadata}


def test_legacy_versions_imply_their_features():
    """A protocol without feature lists has the features of its writer version, by the table in PROTOCOL.md."""
    assert table(versions=(1, 1)).names == set()
    assert table(versions=(1, 2)).names == {"appendOnly", "invariants"}
    assert table(versions=(1, 4)).names == {
        "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns",
    }  # fmt: skip
    assert {"columnMapping", "identityColumns"} <= table(versions=(2, 6)).names
    assert table(versions=(1, 7), features=("appendOnly",)).names == {"appendOnly"}


@pytest.mark.parametrize("feature", ["variantShredding", "variantShredding-preview"])
def test_shredding_needs_the_property_exactly_true_and_the_feature(feature):
    """Shredding is allowed only if the property is exactly `true` and the feature is listed, under either name (F2)."""
    features = ("variantType", feature)
    assert table(features=features, delta__enableVariantShredding="true").shredding
    for value in ("TRUE", "True", "yes", "1", "", "false", " true"):
        refused = table(features=features, delta__enableVariantShredding=value)
        assert not refused.shredding
        with pytest.raises(TableError, match=SHREDDING_PROPERTY):
            refused.check_shredding()
    assert not table(features=features).shredding
    without = table(features=("variantType",), delta__enableVariantShredding="true")
    assert not without.shredding
    with pytest.raises(TableError, match="lacks the feature variantShredding"):
        without.check_shredding()


LISTED_ONLY = (
    "allowColumnDefaults", "appendOnly", "changeDataFeed", "checkConstraints", "checkpointProtection", "clustering",
    "columnMapping", "deletionVectors", "domainMetadata", "generatedColumns", "icebergCompatV1", "icebergCompatV2",
    "icebergCompatV3", "identityColumns", "inCommitTimestamp", "invariants", "materializePartitionColumns", "rowTracking",
    "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint", "vacuumProtocolCheck", "variantShredding",
    "variantShredding-preview", "variantType", "variantType-preview",
)  # fmt: skip


def test_features_that_are_listed_but_not_in_use_do_not_refuse():
    """A table that lists features without using them can be written."""
    table(features=LISTED_ONLY, delta__columnMapping__mode="none").check_writable(overwrite=True)


@pytest.mark.parametrize("feature", ["catalogManaged", "coordinatedCommits-preview", "geospatial", "somethingNew"])
def test_unknown_features_are_refused_by_name(feature):
    """A feature that this writer does not know is an error that names it and says what to do."""
    with pytest.raises(UnsupportedFeatureError, match=rf"table feature {feature} of t .*write with"):
        table(features=("appendOnly", feature)).check_writable(overwrite=False)


def test_unknown_modes_of_column_mapping_are_refused():
    """A mode of column mapping that this writer does not know is an error that names it."""
    with pytest.raises(UnsupportedFeatureError, match=r"delta\.columnMapping\.mode = future"):
        table(delta__columnMapping__mode="future").check_writable()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_iceberg_compat_takes_no_bounds(version):
    """A table with IcebergCompat does not get the feature for bounds, and the message says what works."""
    features = table(**{f"delta__enableIcebergCompatV{version}": "True"})
    features.check_writable()
    with pytest.raises(UnsupportedFeatureError, match=rf"icebergCompatV{version} of t is in use .*tags_only"):
        features.check_new_bounds()


def test_append_only_refuses_overwrite_only():
    """delta.appendOnly allows an append and refuses an overwrite."""
    features = table(features=("appendOnly",), delta__appendOnly="true")
    features.check_writable(overwrite=False)
    with pytest.raises(TableError, match="append-only"):
        features.check_writable(overwrite=True)


def test_random_prefixes():
    """Files get random directories only with column mapping or by the property; their names have the length asked for, or 2."""
    assert table().random_prefix == 0
    assert table(delta__columnMapping__mode="NAME").random_prefix == 2
    assert table(delta__columnMapping__mode="id", delta__randomPrefixLength="4").random_prefix == 4
    assert table(delta__randomizeFilePrefixes="true").random_prefix == 2
    assert table(delta__columnMapping__mode="none", delta__randomPrefixLength="4").random_prefix == 0

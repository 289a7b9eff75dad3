"""Hypothesis strategies for Variants and shredding schemas, and what it means for two Variants to be equal."""

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import strategies as st

from delta_variant import binary

KEYS = st.one_of(st.sampled_from(["a", "b", "c", "id", "é", "", "a b", "it's"]), st.text(max_size=4))

TEXTS = st.one_of(st.text(max_size=8), st.text(min_size=60, max_size=70), st.sampled_from(["", "x" * 63, "x" * 64, "é" * 32]))
INTEGERS = st.one_of(
    st.integers(-300, 300), st.integers(-(2**63), 2**63 - 1), st.sampled_from([-128, 127, -(2**15), 2**31, 2**63 - 1, -(2**63)])
)
DECIMALS = st.builds(
    lambda unscaled, scale: Decimal(unscaled).scaleb(-scale),
    st.one_of(st.integers(-1000, 1000), st.integers(-(10**28) + 1, 10**28 - 1)),
    st.integers(0, 28),
)
DATES = st.dates()
TIMESTAMPS = st.datetimes(timezones=st.just(dt.timezone.utc))
TIMESTAMPS_NTZ = st.datetimes()

SPARK_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    INTEGERS,
    DECIMALS,
    st.floats(),
    st.floats(width=32).map(np.float32),
    TEXTS,
    st.binary(max_size=70),
    DATES,
    TIMESTAMPS,
    TIMESTAMPS_NTZ,
)
"""The scalars that Spark can hold in a Variant."""

NANOSECONDS = (
    st.integers(-(2**63) + 1, 2**63 - 1)
    .filter(lambda n: n % 1000)  # whole microseconds are encoded as such
    .flatmap(lambda n: st.sampled_from([pd.Timestamp(n, unit="ns"), pd.Timestamp(n, unit="ns", tz="UTC")]))
)
SCALARS = st.one_of(SPARK_SCALARS, st.uuids(), st.times(), NANOSECONDS)


def trees(scalars):
    """Variants of nested objects and arrays."""
    return st.recursive(
        scalars,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=5)),
        max_leaves=12,
    )


VARIANTS = trees(SCALARS)
SPARK_VARIANTS = trees(SPARK_SCALARS)

SPARK_LEAVES = st.one_of(
    st.sampled_from(
        [pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary()]
        + [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.null()]
    ),
    st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s))),
)
LEAVES = st.one_of(
    SPARK_LEAVES, st.sampled_from([pa.time64("us"), pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.binary(16)])
)


def schemas(leaves):
    """Shredding schemas of nested objects and lists."""
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map(pa.list_),
            st.dictionaries(KEYS, inner, min_size=1, max_size=5).map(lambda fields: pa.struct(list(fields.items()))),
        ),
        max_leaves=10,
    )


SCHEMAS = schemas(LEAVES)
SPARK_SCHEMAS = schemas(SPARK_LEAVES)


def column(values):
    """A VARIANT column of Python values; the string SQL NULL stands for a NULL row."""
    rows = [None if v == "SQL NULL" else dict(zip(("metadata", "value"), binary.encode(v), strict=True)) for v in values]
    return pa.array(rows, pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)]))


def values(array):
    """The Python values of a VARIANT column; SQL NULL for a NULL row."""
    return ["SQL NULL" if row is None else binary.decode(row["metadata"], row["value"]) for row in array.to_pylist()]


def same(a, b):
    """Equal Variants: exact numerics by numeric value, everything else by type and value, bit for bit."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (int, Decimal)) and isinstance(b, (int, Decimal)) and not isinstance(a, bool) and not isinstance(b, bool):
        return a == b
    if type(a) is not type(b):
        return False
    if isinstance(a, (float, np.floating)):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return bool(a == b) and type(a) is type(b)


__all__ = ["SCHEMAS", "SPARK_SCHEMAS", "SPARK_VARIANTS", "VARIANTS", "column", "same", "trees", "values"]

"""Tables with typed columns of every type, and the types that queries ask for."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import delta_variant as dv
from tests.strategies import column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_NTZ = [
    dt.datetime(1500, 2, 28, 23, 59, 59, 999999),
    dt.datetime(2024, 3, 10, 2, 30),
    dt.datetime(9999, 12, 31, 23),
    dt.datetime.min,
]
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tinyint": (pa.int8(), [0, 1, -1, 127, -128]),
    "smallint": (pa.int16(), [0, 1, 300, 2**15 - 1, -(2**15)]),
    "int": (pa.int32(), [0, 1, 70000, 2**31 - 1, -(2**31)]),
    "bigint": (pa.int64(), [0, 1, 2**53 + 1, 2**63 - 1, -(2**63)]),
    "decimal4": (pa.decimal128(9, 2), [Decimal("0.00"), Decimal("1.50"), Decimal("-9999999.99"), Decimal("100.00")]),
    "decimal8": (pa.decimal128(18, 4), [Decimal("0.0001"), Decimal("99999999999999.9999"), Decimal("-1.0000")]),
    "decimal16": (
        pa.decimal128(38, 10),
        [Decimal("9" * 28 + ".9999999999"), Decimal("-1e-10"), Decimal("5.0000000000")],
    ),
    "short4": (pa.decimal128(5, 1), [Decimal("1.5"), Decimal("-9999.9"), Decimal("1.5"), Decimal("0.0")]),
    "short8": (pa.decimal128(12, 3), [Decimal("1.500"), Decimal("-999999999.999"), Decimal("1.500")]),
    "short16": (pa.decimal128(21, 3), [Decimal("1.500"), Decimal("-999999999999999999.999"), Decimal("1.500")]),
    "float": (pa.float32(), [np.float32(x) for x in (0.0, -0.0, 0.1, 3.4e38, 5, -1e-45, 16777217)]),
    "double": (pa.float64(), [0.0, -0.0, 0.1, 1.7e308, 5e-324, 2.0**63, math.inf, -math.inf, 5.0]),
    "boolean": (pa.bool_(), [True, False]),
    "string": (pa.string(), ["", "5", " 5 ", "5.75", "1e3", "NaN", "true", "2024-03-10", "2024-03-10 02:30:00", "é", "x" * 70]),
    "date": (pa.date32(), [dt.date.min, dt.date(1582, 10, 4), dt.date(2024, 2, 29), dt.date.max]),
    "timestamp": (pa.timestamp("us", "UTC"), [moment.replace(tzinfo=dt.timezone.utc) for moment in _NTZ]),
    "timestamp_ntz": (pa.timestamp("us"), _NTZ),
}
ASKED = [
    *("tinyint", "smallint", "int", "bigint", "decimal(5,1)", "decimal(18,2)", "decimal(18,4)", "decimal(38,10)", "float"),
    *("double", "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz", "array<int>", "map<string,int>"),
    *("struct<x:int>", "variant"),
]


def made(spark: SparkSession, path: Any, files: list[list[Any]], shape: pa.DataType | None = None, **properties: str) -> str:
    """A table with one file for each list of rows, of one length, shredded to the shape; `id` numbers the rows."""
    if properties:
        listed = ", ".join(
            f"'{key}' = '{value}'" for key, value in {"delta.enableVariantShredding": "true", **properties}.items()
        )
        spark.sql(f"create table delta.`{path}` (id long, v variant) using delta tblproperties ({listed})")
    rows = [row for some in files for row in some]
    assert len(rows) == len(files) * len(files[0])
    source = f"{path}.parquet"
    dv.parquet.write_table(pa.table({"id": pa.array(range(len(rows)), pa.int64()), "v": column(rows)}), source)
    one_task = spark.read.parquet(source).coalesce(1)
    dv.write(one_task, path, shred={"v": shape} if shape else "auto", max_rows_per_file=len(files[0]))
    return str(path)

"""What inference gets typed, ours beside Spark's own: python -m benchmarks.inference

Three columns: the bundled feed; objects that are wide and sparse (2,000 fields by Zipf's law, names in no order, some fields of
several types); objects that are deep (10 levels, arrays of objects in arrays of objects). Both sides see the first 4,096 rows,
which is what Spark samples. Spark's schema is read back from a Parquet file that it inferred one for; then `shred` takes the
whole column to both schemas, and a third time to ours held to as many leaves as Spark's has. Printed for each:

    leaves   typed leaves of the schema
    values   share of the scalars (JSON null, which nothing can type, is none) that are in a typed column
    bytes    share of the bytes of all Variants that no `value` column holds any more
    file     bytes of a Parquet file of it, zstd, and against one that is not shredded

Then what three of the rules rest on: file sizes by how rare a path may be, of fields that are mostly null with their columns
(MOSTLY_NULL = 1000) and without (1), and of arrays of numbers by what a value costs that does not fit its type (with
MISFIT = 1000 the type is the one that fits the most values). At last how much larger a file is with a field of array elements
that no element has.
"""

import json
import random
import tempfile
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import zstandard
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.events import session
from delta_variant import binary, parquet, schema, shredding
from delta_variant.schema import inference

ROWS, SAMPLED = 20_000, 4096
FIELDS, ALWAYS = 2000, 20
SPARKS_INFERENCE = {
    "spark.sql.variant.inferShreddingSchema": "true",
    "spark.sql.variant.writeShredding.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
}


def feed() -> list[str]:
    packed = resources.files("delta_variant").joinpath("data/earthquakes.ndjson.zst").read_bytes()
    return zstandard.ZstdDecompressor().decompress(packed).decode().splitlines()


def wide() -> Iterator[str]:
    """Field r of 2,000 is in 20 / r of the rows. One field in ten has two types, one in ten is null half of the time."""
    draw = random.Random(1)
    scalars = (
        lambda: draw.randrange(10_000_000),
        lambda: round(draw.random() * 1000, draw.randrange(4)),
        lambda: f"{draw.randrange(1 << 40):x}",
        lambda: draw.random() < 0.5,
        lambda: f"2024-0{draw.randrange(1, 9)}-1{draw.randrange(9)}T0{draw.randrange(9)}:00:00Z",
        lambda: draw.choice(("red", "green", "blue")),
    )
    names = [f"{draw.randrange(1 << 32):08x}" for _ in range(FIELDS)]
    kinds = [draw.choice(scalars) for _ in names]
    others = [(draw.choice(scalars), draw.choice((0.03, 0.2, 0.4))) if draw.random() < 0.1 else None for _ in names]
    nulls = [0.5 if draw.random() < 0.1 else 0.0 for _ in names]

    def value(field: int) -> object:
        other = others[field]
        if draw.random() < nulls[field]:
            return None
        return other[0]() if other and draw.random() < other[1] else kinds[field]()

    for _ in range(ROWS):
        present = [i for i in range(FIELDS) if draw.random() * (i + 1) < ALWAYS]
        yield json.dumps({names[i]: value(i) for i in present})


def deep() -> Iterator[str]:
    """Orders: a chain of ten objects, and lines with discounts with reasons, each an array of objects."""
    draw = random.Random(2)

    def chain(levels: int) -> object:
        if levels == 0:
            return {"lat": round(draw.uniform(-90, 90), 5), "lon": round(draw.uniform(-180, 180), 5)}
        return {f"level{levels}": chain(levels - 1), "id": draw.randrange(1000), "note": None if draw.random() < 0.3 else "ok"}

    def reason() -> object:
        by = {"user": {"id": draw.randrange(500)}}
        return {"code": draw.choice("ABC"), "text": f"reason {draw.randrange(100)}", "by": by}

    def discount() -> object:
        amount = round(draw.random() * 20, draw.choice((0, 1, 2)))
        return {"amount": amount if draw.random() < 0.97 else "free", "reasons": [reason() for _ in range(draw.randrange(3))]}

    def line() -> object:
        product = {"sku": f"{draw.randrange(1 << 30):x}", "tags": draw.sample(["new", "sale", "eco", "xl"], draw.randrange(4))}
        extra = {f"x{draw.randrange(400)}": draw.randrange(100)} if draw.random() < 0.3 else {}
        discounts = [discount() for _ in range(draw.randrange(3))]
        return {"product": product, "quantity": draw.randrange(9), "discounts": discounts, **extra}

    for i in range(ROWS):
        lines = [line() for _ in range(draw.randrange(5))]
        yield json.dumps({"order": {"id": i, "customer": chain(8), "lines": lines, "options": {}}})


def mostly_null(share: float) -> Iterator[str]:
    """Ten integers, and 150 that are null but for a share of the rows."""
    draw = random.Random(3)
    for _ in range(ROWS):
        rest = {f"n{i}": draw.randrange(1000) if draw.random() < share else None for i in range(150)}
        yield json.dumps({**{f"a{i}": draw.randrange(1_000_000) for i in range(10)}, **rest})


def numbers() -> Iterator[tuple[str, list[str]]]:
    """Arrays of 100 numbers in the forms that JSON has them in: vectors of two widths, coordinates, prices with a tax."""
    draw = np.random.default_rng(6)

    def mostly(digits: int, share: float, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.where(draw.random(values.shape) < share, values.round(digits), values)

    size = (ROWS // 20, 100)
    columns: dict[str, npt.NDArray[np.floating]] = {
        "vectors of doubles": draw.normal(0, 0.05, size),
        "vectors of floats": draw.normal(0, 0.05, size).astype(np.float32),
        "coordinates, 75 % of them rounded to 6 places": mostly(6, 0.75, draw.uniform(-180, 180, size)),
        "prices, 90 % of them rounded to 2 places": mostly(2, 0.9, draw.uniform(0, 100, size).round(2) * 1.19),
    }
    for name, column in columns.items():
        yield name, [f"[{', '.join(np.format_float_positional(number, trim='-') for number in row)}]" for row in column]


def baskets(share: float) -> Iterator[str]:
    """Two ordinary fields and, in a share of the rows, an array of one to five objects with two fields each."""
    draw = random.Random(4)
    for i in range(5 * ROWS):
        items = [{"id": draw.randrange(1000), "sku": f"{draw.randrange(1 << 30):x}"} for _ in range(draw.randrange(1, 6))]
        rest = {"items": items} if draw.random() < share else {}
        yield json.dumps({"id": i, "by": f"{draw.randrange(1 << 30):x}", **rest})


def inferred_by_spark(frame: DataFrame, path: Path) -> pa.DataType:
    """The shredding schema that Spark gives a file of this frame."""
    frame.coalesce(1).write.parquet(str(path))
    (file,) = path.glob("*.parquet")
    return shredding_schema(pq.read_schema(file).field("v").type)


def shredding_schema(group: pa.StructType) -> pa.DataType:
    """The schema that struct<value, typed_value> was shredded to."""
    at = group.get_field_index("typed_value")
    typed = group.field(at).type if at >= 0 else pa.null()
    if pa.types.is_struct(typed):
        return pa.struct([(field.name, shredding_schema(field.type)) for field in typed])
    return pa.list_(shredding_schema(typed.value_type)) if pa.types.is_list(typed) else typed


def leaves(kind: pa.DataType) -> int:
    """Typed leaves of a shredding schema."""
    if pa.types.is_struct(kind):
        return sum(leaves(field.type) for field in kind)
    return leaves(kind.value_type) if pa.types.is_list(kind) else int(not pa.types.is_null(kind))


def scalars(value: object) -> int:
    """Scalars in a JSON value, nulls left out."""
    if isinstance(value, dict | list):
        return sum(map(scalars, value.values() if isinstance(value, dict) else value))
    return int(value is not None)


def stored(group: pa.Array) -> tuple[int, int]:
    """(scalars in typed columns, bytes in `value` columns) of struct<value, typed_value>."""
    typed, left = 0, 0
    for field in group.type:
        array = group.field(field.name)
        if field.name == "value":
            left += size_of(array)
        elif field.name == "typed_value":
            inner = [array.field(i) for i in range(array.type.num_fields)] if pa.types.is_struct(array.type) else []
            inner += [array.values] if pa.types.is_list(array.type) else []
            typed += len(array) - array.null_count if not inner else 0
            for child in inner:
                more, rest = stored(child)
                typed, left = typed + more, left + rest
    return typed, left


def size_of(array: pa.BinaryArray) -> int:
    return pc.sum(pc.binary_length(array)).as_py() or 0


def file_size(column: pa.Array, directory: Path) -> int:
    path = directory / "one.parquet"
    parquet.write_table(pa.table({"v": column}), path, shred=None)
    return path.stat().st_size


def column_of(spark: SparkSession, name: str, texts: Iterable[str], directory: Path) -> tuple[DataFrame, pa.StructArray]:
    """A frame with one VARIANT column, v, and the column."""
    path = directory / f"{name}.ndjson"
    path.write_text("\n".join(texts))
    frame = spark.read.text(str(path)).coalesce(1).select(F.parse_json("value").alias("v"))
    return frame, pa.concat_arrays(frame.toArrow().column("v").chunks)


def compare(name: str, texts: list[str], column: pa.StructArray, theirs: pa.DataType, directory: Path) -> None:
    plain, total = file_size(column, directory), size_of(column.field("value"))
    values = sum(scalars(json.loads(text)) for text in texts)
    print(f"{name}: {len(texts):,} rows, {values:,} scalars, {total:,} bytes; not shredded: {plain:,} bytes in a file")
    sample = column.slice(0, SAMPLED)
    schemas = {"Spark": theirs, "delta-variant": schema.infer(sample), "as many leaves": schema.infer(sample, leaves(theirs))}
    for side, as_type in schemas.items():
        shredded = shredding.shred(column, as_type)
        typed, left = stored(shredded)
        size = file_size(shredded, directory)
        print(
            f"  {side:15}{leaves(as_type):4} leaves  values {typed / values:7.2%}  bytes {1 - left / total:7.2%}"
            f"  file {size:>10,} = {size / plain:.2f}"
        )


def vary(constant: str, settings: Iterable[int], column: pa.StructArray, directory: Path) -> None:
    """File sizes where one of the constants of `schema.inference` is another, the budget out of the way."""
    kept = getattr(inference, constant)
    for setting in settings:
        setattr(inference, constant, setting)
        as_type = schema.infer(column.slice(0, SAMPLED), FIELDS)
        size = file_size(shredding.shred(column, as_type), directory)
        print(f"  {constant} = {setting:<6}{leaves(as_type):5} leaves  file {size:>10,}")
    setattr(inference, constant, kept)


def main() -> None:
    spark = session(**{"spark.driver.maxResultSize": "4g", "spark.driver.memory": "2g", **SPARKS_INFERENCE})
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        for name, texts in (("feed", feed()), ("wide", list(wide())), ("deep", list(deep()))):
            frame, column = column_of(spark, name, texts, directory)
            compare(name, texts, column, inferred_by_spark(frame, directory / name), directory)
            if name == "wide":
                vary("RARE", (5, 10, 15, 20, 25, 33, 50), column, directory)
        for share in (0.0025, 0.005, 0.01, 0.02):
            print(f"150 fields, null but for {share:.2%} of the rows:")
            _, column = column_of(spark, f"null{share}", mostly_null(share), directory)
            vary("MOSTLY_NULL", (1, 1000), column, directory)
        for name, texts in (*numbers(), ("feed", feed())):
            column = binary.parse_json(pa.array(texts))
            print(f"{name}: not shredded {file_size(column, directory):,} bytes in a file")
            vary("MISFIT", (2, 4, 6, 8, 10, 12, 1000), column, directory)
        for share in (1, 0.5, 0.1, 0.02):
            _, column = column_of(spark, f"items{share}", baskets(share), directory)
            form = "id bigint, by string, items array<struct<{}id bigint, sku string>>"
            own, more = (file_size(shredding.shred(column, form.format(field)), directory) for field in ("", "none boolean, "))
            print(f"arrays in {share:.0%} of the rows: {own:,} bytes, with one more field {more / own - 1:.2%} more")
    spark.stop()


if __name__ == "__main__":
    main()

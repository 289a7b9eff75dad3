"""Brings a DataFrame to the schema of a table: columns by name, types by Spark's rules for storing values.

In: any DataFrame, and the schema that Delta stores. Out: a DataFrame with the table's columns, in the table's order and
types. Columns are found by name without regard to case, at every level of structs. A missing column is null, or left out if
the table computes it. A different type is cast if Spark's ANSI store assignment allows it ("Cast.canANSIStoreAssign"), so a
value out of range is an error when the rows are written, and never becomes another value.

Invariant: everything that does not fit is one InvalidSchemaError, with the column, before a row is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # what PySpark programs call it
from pyspark.sql import types as t

from delta_variant import jvm
from delta_variant.errors import InvalidSchemaError, UnsupportedFeatureError
from delta_variant.paths import ELEMENT, MAP_KEY, MAP_VALUE, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from pyspark.sql import Column, DataFrame, SparkSession

_ATOMIC = (
    t.BooleanType, t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.FloatType, t.DoubleType, t.DecimalType, t.StringType,
    t.BinaryType, t.DateType, t.TimestampType, t.TimestampNTZType, t.VariantType,
)  # fmt: skip


def align(
    df: DataFrame, schema: t.StructType, table: str, computed: Collection[str] = (), carried: Collection[str] = ()
) -> DataFrame:
    """The rows of `df` with the columns of `schema`, in its order and types.

    table: its name in messages. computed: the columns, in lower case, that the table computes; those that `df` lacks stay
    missing. carried: columns of `schema` that are not the table's.
    Raises InvalidSchemaError for a column that is missing and NOT NULL, unknown, ambiguous, or of a type that the
    type of the table's column cannot hold.
    """
    spark = df.sparkSession
    given = _by_name(df.schema, table, "the DataFrame")
    wanted = _by_name(schema, table, table)
    for name, field in given.items():
        if name not in wanted:
            raise InvalidSchemaError(
                f"column {field.name} is not in {table}, which has {', '.join(n for n in schema.names if n not in carried)}: "
                f"leave it out with df.drop({field.name!r}), or add it with merge_schema=True"
            )
    if df.columns == schema.names and all(
        _same(have.dataType, want.dataType) for have, want in zip(df.schema, schema, strict=True)
    ):
        return df
    columns = []
    for field in schema:
        have = given.get(field.name.lower())
        if have is None and field.name.lower() in computed:
            continue
        column = None if have is None else F.col(quoted(have.name))
        columns.append(_fit(spark, column, have, field, (field.name,), table).alias(field.name))
    with jvm.settings(spark, {"spark.sql.ansi.enabled": "true"}):  # a cast keeps the setting under which it was made
        return df.select(*columns)


def without_empty_text(df: DataFrame, partition_by: Collection[str]) -> DataFrame:
    """The rows with null in place of empty strings in partition columns, as the table will have them.

    Constraints are checked after that, as by Delta (TransactionalWrite, "convertEmptyToNullIfNeeded").
    """
    texts = {f.name for f in df.schema if isinstance(f.dataType, t.StringType)} & set(partition_by)
    if not texts:
        return df
    columns = [(name, F.col(quoted(name))) for name in df.columns]
    return df.select(*(F.nullif(column, F.lit("")).alias(name) if name in texts else column for name, column in columns))


def _fit(
    spark: SparkSession,
    column: Column | None,
    have: t.StructField | None,
    want: t.StructField,
    path: tuple[str, ...],
    table: str,
) -> Column:
    """A column or field of the table, from the one that the DataFrame has; NULL if it has none."""
    where = ".".join(path)
    if column is None or have is None:
        if not want.nullable:
            raise InvalidSchemaError(f"column {where} is missing, and NOT NULL in {table}: add it to the DataFrame")
        return F.lit(None).cast(want.dataType)
    if _same(have.dataType, want.dataType):
        return column
    if isinstance(have.dataType, t.StructType) and isinstance(want.dataType, t.StructType):
        given = _by_name(have.dataType, table, where)
        wanted = _by_name(want.dataType, table, where)
        for name, field in given.items():
            if name not in wanted:
                raise InvalidSchemaError(
                    f"column {where}.{field.name} is not in {table}: leave it out, or add it with merge_schema=True"
                )
        children = []
        for field in want.dataType:
            source = given.get(field.name.lower())
            child = None if source is None else column.getField(source.name)
            children.append(_fit(spark, child, source, field, (*path, field.name), table).alias(field.name))
        return F.when(column.isNotNull(), F.struct(*children))
    if not _storable(spark, have.dataType, want.dataType):
        hint = ": make it one with parse_json={…}" if isinstance(want.dataType, t.VariantType) else ": cast it first"
        raise InvalidSchemaError(
            f"column {where} is {type_name(have.dataType)} in the DataFrame and {type_name(want.dataType)} in {table}{hint}"
        )
    return column.cast(want.dataType)


def _same(have: t.DataType, want: t.DataType, *, in_container: bool = False) -> bool:
    """Whether nothing has to be converted.

    NOT NULL fields of structs are checked when the rows are written. Inside arrays and maps, nullability is compared here.
    """
    if isinstance(have, t.StructType) and isinstance(want, t.StructType):
        return have.names == want.names and all(
            _same(a.dataType, b.dataType, in_container=in_container) and (b.nullable or not a.nullable or not in_container)
            for a, b in zip(have, want, strict=True)
        )
    if isinstance(have, t.ArrayType) and isinstance(want, t.ArrayType):
        nulls = want.containsNull or not have.containsNull
        return nulls and _same(have.elementType, want.elementType, in_container=True)
    if isinstance(have, t.MapType) and isinstance(want, t.MapType):
        nulls = want.valueContainsNull or not have.valueContainsNull
        keys = _same(have.keyType, want.keyType, in_container=True)
        return nulls and keys and _same(have.valueType, want.valueType, in_container=True)
    return have == want


def _storable(spark: SparkSession, have: t.DataType, want: t.DataType) -> bool:
    """Whether Spark's store assignment allows the cast and the nested fields have the same names.

    Store assignment does not look at names.
    """
    if [name.lower() for name in field_names(have)] != [name.lower() for name in field_names(want)]:
        return False
    cast = jvm.scala_object(spark, "org.apache.spark.sql.catalyst.expressions.Cast")
    return bool(cast.canANSIStoreAssign(jvm.data_type(spark, have), jvm.data_type(spark, want)))


def _children(data_type: t.DataType, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], t.DataType]]:
    """The types inside a type, and their paths as Parquet names them (`list`, `element`; `key_value`, `key`, `value`)."""
    if isinstance(data_type, t.StructType):
        return [((*path, field.name), field.dataType) for field in data_type]
    if isinstance(data_type, t.MapType):
        return [((*path, *MAP_KEY), data_type.keyType), ((*path, *MAP_VALUE), data_type.valueType)]
    return [((*path, *ELEMENT), data_type.elementType)] if isinstance(data_type, t.ArrayType) else []


def field_names(data_type: t.DataType) -> Iterator[str]:
    """The names of all fields inside a type, in order."""
    for path, inner in _children(data_type):
        if isinstance(data_type, t.StructType):
            yield path[0]
        yield from field_names(inner)


def _by_name(schema: t.StructType, table: str, whose: str) -> dict[str, t.StructField]:
    fields: dict[str, t.StructField] = {}
    for field in schema:
        if field.name.lower() in fields:
            raise InvalidSchemaError(
                f"two columns of {whose} are called {field.name}, and {table} ignores the case of names: rename one of them"
            )
        fields[field.name.lower()] = field
    return fields


def type_name(data_type: t.DataType) -> str:
    """The name of a type in messages: `BIGINT`."""
    return data_type.simpleString().upper()


def storable_schema(schema: t.StructType) -> t.StructType:
    """The schema of a new table for these columns, with every column and field nullable.

    Raises UnsupportedFeatureError for a type that `write` does not handle.
    """
    check_types(schema)
    new = nullable(schema)
    assert isinstance(new, t.StructType)
    return new


def nullable(data_type: t.DataType) -> t.DataType:
    """The type with nulls allowed everywhere."""
    if isinstance(data_type, t.StructType):
        return t.StructType([t.StructField(f.name, nullable(f.dataType), True, f.metadata) for f in data_type])
    if isinstance(data_type, t.ArrayType):
        return t.ArrayType(nullable(data_type.elementType), True)
    if isinstance(data_type, t.MapType):
        return t.MapType(nullable(data_type.keyType), nullable(data_type.valueType), True)
    return data_type


def check_types(schema: t.StructType) -> None:
    """Raises UnsupportedFeatureError, with the column, for a type that `write` does not handle."""
    for path, data_type in leaves(schema):
        collated = isinstance(data_type, t.StringType) and data_type.collation not in (None, "UTF8_BINARY")
        if type(data_type) not in _ATOMIC or collated:
            raise UnsupportedFeatureError(
                f"column {'.'.join(path)} is {type_name(data_type)}, which delta_variant.write does not handle: cast or drop it"
            )


def leaves(data_type: t.DataType, path: tuple[str, ...] = ()) -> Iterable[tuple[tuple[str, ...], t.DataType]]:
    """The types without children, and their paths; nothing for a schema without columns."""
    children = _children(data_type, path)
    for own, inner in children:
        yield from leaves(inner, own)
    if path and not children:
        yield path, data_type


def not_null(schema: t.StructType, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of the columns and the fields of structs that must not be null."""
    for field in schema:
        if not field.nullable:
            yield (*path, field.name)
        if isinstance(field.dataType, t.StructType):
            yield from not_null(field.dataType, (*path, field.name))

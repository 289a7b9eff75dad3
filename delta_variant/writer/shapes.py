"""The shape that each VARIANT column gets, and the paths whose bounds come first.

In: what the user gave as `shred=`, the table's properties, or the first rows of a file. Out: shredding schemas by column, in
the order in which they count: the user's, the property's, the inferred one. VARIANT columns at the top and in structs have
shapes; those in arrays and maps are plain.

A property `delta_variant.shredding.<column>` holds a schema as DDL text, `delta_variant.bounds.<column>` paths as Spark writes
them, separated by commas. Names in structs are dotted, odd ones in backquotes. A property of a column that is gone, or is no
VARIANT any more, says nothing.

How inferred files agree: bounds compare where types are of one class, so integers of every width are bigint, and integers and
decimals are one class (`schema.infer`). What is left to chance is whether the first rows hold the longest number of a file, or
its finest scale: one that its column cannot hold rules the path out. Therefore a task carries over what it has counted, and the
numbers of a file get the type that suits those of all files before as well. Other types follow from the values alone; where one
path holds values of several classes no type makes it comparable. A stored shape leaves nothing to chance.

Invariant: Spark can read every shape that comes out of here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from delta_variant import paths
from delta_variant import schema as schemas
from delta_variant import types as variant_types
from delta_variant.errors import DeltaVariantError, InvalidPathError, InvalidSchemaError, UnsupportedFeatureError
from delta_variant.writer.columns import Path, dotted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

Shred = Literal["auto", False]

SHREDDING = "delta_variant.shredding."
BOUNDS = "delta_variant.bounds."

_NAME = re.compile(r"(?:`((?:[^`]|``)+)`|([^`.]+))(\.|$)")
_LISTED = re.compile(r"""((?:\['[^']*'\]|\["[^"]*"\]|[^,])+)(?:,|$)""")


# ------------------------------------------------------------------------------------------------- given, on the driver


def given(
    shred: Shred | Mapping[str, str | pa.DataType], schema: StructType, properties: Mapping[str, str]
) -> dict[Path, pa.DataType]:
    """The shapes that do not depend on rows, by column as the schema spells it; none where `shred` is False.

    Raises InvalidSchemaError and UnsupportedFeatureError for a shape that is none, or that Spark cannot read.
    """
    if shred is False:
        return {}
    columns = {_folded(path): (path, kind) for path, kind in _columns(schema)}
    shapes = {}
    for key, text in properties.items():
        if key.startswith(SHREDDING):
            path, kind = columns.get(_folded(parse_name(key[len(SHREDDING) :])), ((), ""))
            if kind == "variant":
                shapes[path] = _shape(text, path, f"table property {key}")
    if shred == "auto":
        return shapes
    if not hasattr(shred, "items"):
        raise InvalidSchemaError(f"shred={shred!r} must be 'auto', False, or a mapping from VARIANT columns to their schemas")
    for name, wanted in shred.items():
        path, kind = columns.get(_folded(parse_name(name)), ((), ""))
        if kind != "variant":
            found = kind.upper() or "not a column"
            raise InvalidSchemaError(f"shred: {name} is {found}, and only VARIANT columns can be shredded, in structs too")
        shapes[path] = _shape(wanted, path, "shred")
    return shapes


def first_bounds(
    schema: StructType, properties: Mapping[str, str], cluster_by: Sequence[str] = ()
) -> dict[Path, tuple[Path, ...]]:
    """For VARIANT columns the keys of the paths whose bounds go before others: those of `cluster_by`, then the property's.

    Raises InvalidPathError.
    """
    columns = {_folded(path): (path, kind) for path, kind in _columns(schema)}
    chosen: dict[Path, tuple[Path, ...]] = {}
    for text in cluster_by:
        name, variant_path = split(text)
        path, kind = columns.get(_folded(parse_name(name)), ((), ""))
        if kind == "variant" and variant_path is not None:
            steps = paths.parse_variant_path(rooted(variant_path))
            if all(isinstance(step, str) for step in steps):
                chosen[path] = (*chosen.get(path, ()), tuple(map(str, steps)))
    for key, text in properties.items():
        if key.startswith(BOUNDS):
            path, kind = columns.get(_folded(parse_name(key[len(BOUNDS) :])), ((), ""))
            if kind == "variant":
                listed = [_keys(one.strip(), key) for one in _LISTED.findall(text) if one.strip()]
                chosen[path] = tuple(dict.fromkeys((*chosen.get(path, ()), *listed)))
    return chosen


def parse_name(text: str) -> Path:
    """The names in `a.b`, of which odd ones stand in backquotes. Raises InvalidSchemaError."""
    names: list[str] = []
    at = 0
    while at < len(text) or not names:
        match = _NAME.match(text, at)
        if match is None or (match[3] and match.end() == len(text)):
            raise InvalidSchemaError(f"{text!r} is not the name of a column: write a.b, with odd names in backquotes")
        names.append(match[1].replace("``", "`") if match[1] else match[2])
        at = match.end()
    return tuple(names)


def split(text: str) -> tuple[str, str | None]:
    """A column's name, and the path behind the first colon that is not in backquotes."""
    quoted = False
    for at, char in enumerate(text):
        quoted ^= char == "`"
        if char == ":" and not quoted:
            return text[:at], text[at + 1 :]
    return text, None


def rooted(path: str) -> str:
    """A path with its `$`, which users may leave out."""
    return path if path.startswith("$") else f"${path}" if path.startswith("[") else f"$.{path}"


def _keys(text: str, key: str) -> Path:
    try:
        steps = paths.parse_variant_path(rooted(text))
    except InvalidPathError as error:
        raise InvalidPathError(f"table property {key}: {error}") from error
    keys = tuple(step for step in steps if isinstance(step, str))
    if len(keys) < len(steps):
        raise InvalidPathError(f"table property {key}: {text} leads into an array, and only paths through objects have bounds")
    return keys


def _shape(wanted: str | pa.DataType, path: Path, whose: str) -> pa.DataType:
    try:
        shape = schemas.parse(wanted) if isinstance(wanted, str) else wanted
        schemas.check(shape)
    except DeltaVariantError as error:
        raise type(error)(f"{whose}: column {dotted(path)}: {error}") from error
    leaf = next(_unreadable(shape, dotted(path)), None)
    if leaf is not None:
        raise UnsupportedFeatureError(f"{whose}: {leaf}, which Spark cannot read in a Variant: leave the field out")
    return shape


def _unreadable(shape: pa.DataType, path: str) -> Iterator[str]:
    """The leaves that Spark 4.2 fails to read, with their types."""
    if pa.types.is_struct(shape):
        for field in shape:
            yield from _unreadable(field.type, f"{path}.{field.name}")
    elif schemas.is_list(shape):
        yield from _unreadable(shape.value_type, f"{path}[*]")
    elif not pa.types.is_null(shape) and not _is_readable(shape):
        yield f"{path} is {shape}"


def _is_readable(leaf: pa.DataType) -> bool:
    primitive = variant_types.of_arrow(leaf)
    return primitive is not None and primitive.spark is not None


def _columns(schema: Any, parents: Path = ()) -> Iterator[tuple[Path, str]]:
    """Columns and fields of structs, and the names of their types."""
    for field in schema.fields:
        path = (*parents, field.name)
        yield path, field.dataType.simpleString()
        if hasattr(field.dataType, "fields"):
            yield from _columns(field.dataType, path)


def _folded(path: Path) -> Path:
    return tuple(name.lower() for name in path)


# ------------------------------------------------------------------------------------------------ inferred, by the tasks


def shreddable(schema: pa.Schema, variants: frozenset[Path]) -> list[Path]:
    """The VARIANT columns at the top and in structs."""
    return [path for field in schema for path in _shreddable(field.type, (field.name,), variants)]


def _shreddable(kind: pa.DataType, path: Path, variants: frozenset[Path]) -> Iterator[Path]:
    if path in variants:
        yield path
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _shreddable(field.type, (*path, field.name), variants)


def column(batch: pa.RecordBatch, path: Path) -> pa.Array:
    """The column of that path. Spark sends a null in every field of a null struct."""
    array = batch.column(path[0])
    for name in path[1:]:
        array = array.field(array.type.get_field_index(name))
    return array


class Inference:
    """Shapes for the files of one task, from their first rows and from the numbers of the files before."""

    def __init__(self) -> None:
        self._seen: dict[Path, schemas.Sample] = {}

    def shape(self, path: Path, arrays: Iterable[pa.Array]) -> pa.DataType | None:
        """The shape for a file of this column that begins with these rows; None where nothing is worth shredding.

        Raises MalformedVariantError.
        """
        sample = schemas.Sample()
        for array in arrays:
            sample.add(array)
        shape = _readable(sample.schema())
        if path not in self._seen:
            self._seen[path] = sample
            return shape
        self._seen[path].merge(sample)
        known = self._seen[path].schema()
        return shape if shape is None or known is None else _agreed(shape, known)


def _agreed(shape: pa.DataType, known: pa.DataType) -> pa.DataType:
    """The shape with the numbers of `known`, which counts all files so far."""
    if pa.types.is_struct(shape) and pa.types.is_struct(known):
        types = {field.name: field.type for field in known}
        return pa.struct([(f.name, _agreed(f.type, types[f.name]) if f.name in types else f.type) for f in shape])
    if schemas.is_list(shape) and schemas.is_list(known):
        return pa.list_(_agreed(shape.value_type, known.value_type))
    return known if variant_types.is_exact(shape) and variant_types.is_exact(known) else shape


def leaves(shape: pa.DataType) -> int:
    """How many columns a shape has, those for `value` left out."""
    if pa.types.is_struct(shape):
        return sum(leaves(field.type) for field in shape)
    return leaves(shape.value_type) if schemas.is_list(shape) else 1


def named_apart(shape: pa.DataType) -> bool:
    """Whether no two fields of an object have names that differ by case only, which Spark's Parquet reader may mistake."""
    if pa.types.is_struct(shape):
        names = {field.name.casefold() for field in shape}
        return len(names) == shape.num_fields and all(named_apart(field.type) for field in shape)
    return not schemas.is_list(shape) or named_apart(shape.value_type)


def _readable(shape: pa.DataType | None) -> pa.DataType | None:
    """The shape without what Spark cannot read, which stays in `value`."""
    if shape is None:
        return None
    if pa.types.is_struct(shape):
        fields = [(field.name, _readable(field.type)) for field in shape]
        kept = [(name, kind) for name, kind in fields if kind is not None]
        return pa.struct(kept) if kept else None
    if schemas.is_list(shape):
        element = _readable(shape.value_type)
        return None if element is None else pa.list_(element)
    return shape if _is_readable(shape) else None

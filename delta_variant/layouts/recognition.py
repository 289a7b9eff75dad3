"""Recognizes the layout of a VARIANT column from its Arrow type alone, without a row.

A struct is taken for a VARIANT column if it has these columns (those whose names begin with an underscore are ignored):

    final    metadata, and value, typed_value or both; nothing else
    draft    metadata and variant_value, whatever else there is; or metadata, one or more of object, array and typed_value,
             nothing else, and a pattern
    first    no metadata, and untyped_value alone or with any of object, array and typed_value, whatever else there is; or
             object, array or both, and typed_value or not, nothing else, and a pattern

metadata, value, variant_value and untyped_value are binary, in any of Arrow's forms. "A pattern" means that all fields of
`object` and the elements of `array` are groups of only these columns, down to the leaves. A user's own struct may have any
of these names, so a struct without annotation is taken for a VARIANT only if its whole structure matches; one with
typed_value alone never is. "Whatever else" is accepted here because the specifications want readers to fail on unknown
columns, which `check` does. If the file annotates a group as VARIANT, it is one, and any other structure is an error.

Inside a draft column, a struct is a group (option 1) if it has variant_value or typed_value, or matches the pattern with
object or array alone. Any other type of a field or element is the directly typed value (option 2).
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from delta_variant import schema as schemas
from delta_variant import types as t
from delta_variant.errors import InvalidLayoutError


@dataclass(frozen=True)
class Words:
    """What distinguishes the older layouts: the name of the column of bytes, and whether fields can be typed directly."""

    value: str
    direct: bool


DRAFT = Words("variant_value", direct=True)
FIRST = Words("untyped_value", direct=False)

TYPED = ("object", "array", "typed_value")
"""The columns beside the bytes, of which at most one may be set."""


def is_variant(kind: pa.DataType, *, annotated: bool = False) -> bool:
    """Whether a column of this type is a VARIANT, by the rules of `delta_variant.layouts.recognition`.

    annotated: whether the Parquet file gives the column the VARIANT logical type.

    >>> import delta_variant as dv
    >>> dv.layouts.is_variant(dv.shredding.UNSHREDDED), dv.layouts.is_variant(pa.struct([("id", pa.int64())]))
    (True, False)
    """
    if annotated or not pa.types.is_struct(kind):
        return annotated
    columns = _columns(kind)
    names = set(columns) - {"metadata"}
    if "metadata" not in columns:
        if FIRST.value in columns:
            return t.is_binary(columns[FIRST.value]) and (names == {FIRST.value} or not names.isdisjoint(TYPED))
        return not names.isdisjoint(("object", "array")) and _fits(kind, FIRST)
    if not t.is_binary(columns["metadata"]):
        return False
    if names and names <= {"value", "typed_value"}:
        return "value" not in columns or t.is_binary(columns["value"])
    if DRAFT.value in columns:
        return t.is_binary(columns[DRAFT.value])
    return bool(names) and _fits(pa.struct([f for f in kind if f.name != "metadata"]), DRAFT)


def layout_of(kind: pa.DataType) -> Words | None:
    """The layout of a VARIANT column; None: the final one. Raises InvalidLayoutError if it has no known layout."""
    names = set(_columns(kind)) if pa.types.is_struct(kind) else set()
    if "metadata" in names:
        return None if "value" in names or (DRAFT.value not in names and _is_final(kind)) else DRAFT
    if names.isdisjoint((FIRST.value, "object", "array")):
        raise InvalidLayoutError(f"a VARIANT column is a struct of metadata with value, typed_value or both, not {kind}")
    return FIRST


def is_group(kind: pa.DataType, words: Words) -> bool:
    """Whether a field or an element is a group; if not, its value is typed directly."""
    if not words.direct:
        return True
    names = set(_columns(kind)) if pa.types.is_struct(kind) else set()
    return not names.isdisjoint((words.value, "typed_value")) or _fits(kind, words)


def check(kind: pa.DataType, words: Words, path: str = "$") -> None:
    """Raises InvalidLayoutError, with the path, for a group that the specification of its layout does not allow."""
    columns = _columns(kind) if pa.types.is_struct(kind) else {}
    allowed = {words.value, *TYPED, *(("metadata",) if path == "$" and words.direct else ())}
    unknown = sorted(set(columns) - allowed)
    if unknown or not columns or len(columns) < sum(not f.name.startswith("_") for f in kind):
        wrong = f"unknown columns {unknown} in" if unknown else f"{words.value}, object, array or typed_value expected once in"
        raise InvalidLayoutError(f"at {path}: {wrong} the group {kind}")
    for name in ("metadata", words.value):
        if name in columns and not t.is_binary(columns[name]):
            raise InvalidLayoutError(f"at {path}: {name} is binary, not {columns[name]}")
    if "object" in columns:
        if not pa.types.is_struct(columns["object"]) or pa.types.is_struct(columns.get("typed_value", pa.null())):
            raise InvalidLayoutError(f"at {path}: one struct, of the fields of an object, expected in {kind}")
        _check_object(columns["object"], words, path)
    if "array" in columns:
        if not schemas.is_list(columns["array"]):
            raise InvalidLayoutError(f"at {path}: array is a list, not {columns['array']}")
        _check_child(columns["array"].value_type, words, f"{path}[*]")
    if "typed_value" in columns:
        _check_typed(columns["typed_value"], words, path)


def _check_child(kind: pa.DataType, words: Words, path: str) -> None:
    if is_group(kind, words):
        check(kind, words, path)
    else:
        _check_typed(kind, words, path)


def _check_typed(kind: pa.DataType, words: Words, path: str) -> None:
    if words.direct and pa.types.is_struct(kind):
        _check_object(kind, words, path)
    elif words.direct and schemas.is_list(kind):
        _check_child(kind.value_type, words, f"{path}[*]")
    elif not _is_primitive(kind):
        raise InvalidLayoutError(f"at {path}: this layout has no typed value of type {kind}")


def _check_object(kind: pa.StructType, words: Words, path: str) -> None:
    names = [field.name for field in kind]
    if not names or len(set(names)) < len(names):
        raise InvalidLayoutError(f"at {path}: an object has fields, and each of them once, not {kind}")
    for field in kind:
        _check_child(field.type, words, f"{path}.{field.name}")


def _columns(kind: pa.StructType) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in kind if not field.name.startswith("_")}


def _is_primitive(kind: pa.DataType) -> bool:
    """Whether the tables of the older specifications have the type; time, nanoseconds and UUID were added later."""
    primitive = t.of_arrow(kind)
    return primitive is not None and primitive.id <= t.STRING


def _fits(kind: pa.DataType, words: Words) -> bool:
    """Whether a group matches the pattern in the module's rules."""
    columns = _columns(kind) if pa.types.is_struct(kind) else {}
    if not columns or not set(columns) <= {words.value, *TYPED}:
        return False
    for name, column in columns.items():
        if name == "object":
            fits = pa.types.is_struct(column) and len(column) > 0 and all(_fits(field.type, words) for field in column)
        elif name == "array":
            fits = schemas.is_list(column) and _fits(column.value_type, words)
        elif name == "typed_value":
            fits = words.direct or _is_primitive(column)
        else:
            fits = t.is_binary(column)
        if not fits:
            return False
    return True


def _is_final(kind: pa.DataType) -> bool:
    """Whether everything inside typed_value, down to the leaves, is a group of value and typed_value."""
    columns = _columns(kind) if pa.types.is_struct(kind) else {}
    if not columns or not set(columns) <= {"metadata", "value", "typed_value"}:
        return False
    typed = columns.get("typed_value")
    if typed is not None and pa.types.is_struct(typed):
        return all(_is_final(field.type) for field in typed)
    return typed is None or not schemas.is_list(typed) or _is_final(typed.value_type)

"""The Arrow extension type `arrow.parquet.variant`: VARIANT columns that other libraries recognize, and their JSON text.

In: VARIANT columns in any of Arrow's storage forms. Out: arrays of `VariantType`, unshredded columns, or JSON text.

    struct<metadata: binary not null, value: binary>                     unshredded: exactly these two
    struct<metadata: binary not null, value: binary, typed_value: T>     shredded; value may be left out

Fields are found by name. metadata and value are binary, large_binary or binary_view; metadata may be dictionary- or
run-end-encoded. T is a primitive, a list of groups (list, large_list, list_view, large_list_view) or a struct of groups; a
group is struct<value, typed_value>, and may lack one of the two.

Source: Arrow, canonical extension types, "Parquet Variant"; the types of typed_value are those of Parquet VariantShredding,
"Shredded Value Types", so that the unsigned integers of Arrow's own table are refused. The declared nullability of fields is
not checked, because Polars declares every field nullable; only nulls in the data count. Importing this module registers the
type. Invariant: a `VariantType` has a storage that the specification allows.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from delta_variant import binary, shredding
from delta_variant.buffers import flags_of
from delta_variant.errors import UnsupportedFeatureError

NAME = "arrow.parquet.variant"

Column = TypeVar("Column", pa.Array, pa.ChunkedArray)


class VariantType(pa.ExtensionType):  # type: ignore[misc]  # pyarrow ships no types
    """The extension type of a VARIANT column. Raises InvalidLayoutError if Variants cannot be stored as `storage_type`.

    `VariantType(array.type).wrap_array(array)` gives a column this type; `.storage` removes it. IPC, the C data interface and
    pickle keep the type; DuckDB and Polars know it. While it is registered, pyarrow 24 and later give it to the VARIANT columns
    of Parquet files that they read; with `arrow_extensions_enabled=False` they return the storage, and can read parts of it.
    `pa.unregister_extension_type("arrow.parquet.variant")` undoes the registration.

    pyarrow's Parquet writers take every type of this name for a class of their own, and crash the process (24 and 26). After an
    import of this module they raise UnsupportedFeatureError instead: write with `delta_variant.parquet.write_table`.

    >>> import delta_variant as dv
    >>> storage = dv.shredding.storage_type(dv.schema.parse("id bigint"))
    >>> dv.arrow.VariantType(storage).extension_name
    'arrow.parquet.variant'
    """

    def __init__(self, storage_type: pa.DataType = shredding.UNSHREDDED) -> None:
        shredding.schema_of(storage_type)
        super().__init__(storage_type, NAME)

    def __hash__(self) -> int:
        return hash(NAME)  # types are equal whose lists have elements of other names

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> VariantType:
        return cls(storage_type)

    def __arrow_ext_class__(self) -> type[VariantArray]:
        return VariantArray

    def __arrow_ext_scalar_class__(self) -> type[VariantScalar]:
        return VariantScalar


class VariantScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """One Variant of a `VariantArray`.

    >>> import delta_variant as dv
    >>> dv.arrow.VariantArray.from_pylist([{"id": 1}])[0].as_py()
    {'id': 1}
    """

    def as_py(self, **_: Any) -> Any:
        """The Python value, by the table in `delta_variant.binary`; None for NULL and for a Variant null."""
        return None if self.value is None else self.type.wrap_array(pa.repeat(self.value, 1)).to_pylist()[0]


class VariantArray(pa.ExtensionArray):  # type: ignore[misc]
    """A column of Variants in any storage.

    >>> import delta_variant as dv
    >>> events = dv.arrow.VariantArray.from_pylist([{"id": 1}, None])
    >>> len(events), events.null_count
    (2, 1)
    """

    @staticmethod
    def from_pylist(values: Iterable[Any]) -> VariantArray:
        """An unshredded column of Python values, by the table in `delta_variant.binary`, or of scalars of such a column. None
        becomes NULL.

        Raises DeltaVariantError for a value that Variant cannot hold.

        >>> import delta_variant as dv
        >>> dv.arrow.VariantArray.from_pylist([{"id": 1}, ["a", "b"], None]).to_pylist()
        [{'id': 1}, ['a', 'b'], None]
        """
        rows = [
            None
            if value is None or (isinstance(value, VariantScalar) and not value.is_valid)
            else dict(zip(("metadata", "value"), binary.encode(value), strict=True))
            for value in values
        ]
        array: VariantArray = VariantType().wrap_array(pa.array(rows, shredding.UNSHREDDED))
        return array

    def to_pylist(self, **_: Any) -> list[Any]:
        """The Python values, by the table in `delta_variant.binary`.

        NULL and a Variant null are both None; `is_null` distinguishes them. Raises InvalidLayoutError, MalformedVariantError.
        """
        return [None if row is None else binary.decode(**row) for row in shredding.unshred(self).to_pylist()]


def unshredded(column: Column) -> Column:
    """The column as `VariantType` over struct<metadata: binary not null, value: binary not null>, which every consumer accepts.

    column: an array or a chunked array in any storage, with or without the extension type. Raises InvalidLayoutError,
    MalformedVariantError.

    >>> import delta_variant as dv
    >>> events = dv.arrow.VariantArray.from_pylist([{"id": 1}])
    >>> shredded = dv.shredding.shred(events, "id bigint")
    >>> dv.arrow.unshredded(shredded).to_pylist()
    [{'id': 1}]
    """
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([unshredded(chunk) for chunk in column.chunks], VariantType())
    return VariantType().wrap_array(shredding.unshred(column))


def to_json(column: Column) -> Column:
    """The JSON text of every row, as Spark's `to_json` writes it with timestamps in UTC; null for NULL.

    column: as for `unshredded`. Returns pa.string(), or pa.large_string() if the texts of one array take more than 2 GiB.
    Raises the same errors.

    >>> import delta_variant as dv
    >>> dv.arrow.to_json(dv.arrow.VariantArray.from_pylist([{"id": 1}, None])).to_pylist()
    ['{"id":1}', None]
    """
    if isinstance(column, pa.ChunkedArray):
        texts = [to_json(chunk) for chunk in column.chunks]
        kind = pa.large_string() if pa.large_string() in [text.type for text in texts] else pa.string()
        return pa.chunked_array([text.cast(kind) for text in texts], kind)
    plain = shredding.unshred(column)
    return binary.json_column(plain.field("metadata"), plain.field("value"), flags_of(plain))


# ---------------------------------------------------------------------------------------------------------------- registration


def _refuse(schema: pa.Schema) -> None:
    for field in schema:
        if _holds_variants(field.type):
            raise UnsupportedFeatureError(
                f"column {field.name} has the type {NAME}, which pyarrow's Parquet writers cannot write: use "
                "delta_variant.parquet.write_table, or write the column's storage"
            )


def _holds_variants(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.ExtensionType):  # a type defined in Python, by this package or by another
        return bool(kind.extension_name == NAME)
    return any(_holds_variants(kind.field(i).type) for i in range(kind.num_fields))


def _written(scanner: Any, *rest: Any) -> pa.Schema | None:
    """The schema that `write_dataset` writes to Parquet files."""
    if not isinstance(scanner, ds.Scanner):  # of `delta_variant.dataset`
        raise UnsupportedFeatureError(
            "pyarrow's write_dataset cannot read this dataset itself: pass the rows, dataset.scanner().to_reader()"
        )
    return scanner.projected_schema if any(isinstance(option, ds.ParquetFileWriteOptions) for option in rest) else None


def _guard(owner: Any, name: str, schema_of: Callable[..., pa.Schema | None]) -> None:
    """Makes one of pyarrow's functions raise an error for a schema that would crash the process.

    schema_of: the schema that the function writes, from the function's arguments.
    """
    write = getattr(owner, name, None)
    if write is None or hasattr(write, "__wrapped__"):
        return

    @functools.wraps(write)
    def guarded(*args: Any, **options: Any) -> None:
        schema = schema_of(*args, **options)
        if isinstance(schema, pa.Schema):
            _refuse(schema)
        write(*args, **options)

    setattr(owner, name, guarded)


def _register() -> None:
    with contextlib.suppress(pa.ArrowKeyError):  # registered already, here or by a library whose type then serves as well
        pa.register_extension_type(VariantType())
    _guard(pq.ParquetWriter, "__init__", lambda _self, where, schema, *_, **__: schema)  # noqa: ARG005  # pyarrow's own names
    _guard(ds, "_filesystemdataset_write", _written)


_register()

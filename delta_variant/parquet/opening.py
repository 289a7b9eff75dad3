"""Opens Parquet files of any origin, and reads their rows: the only place where pyarrow gets a file.

In: an open file. Out: pyarrow's ParquetFile, and record batches. Source: parquet-format, "Checksumming".

pyarrow parses the footer of a damaged file without an error. Its accessors of column chunks then end the process, since they
cannot raise Arrow's exceptions. A footer is therefore checked first (`footer.checked`), in a small part of the time that
pyarrow takes to parse it. Pages are decoded by code of Arrow that raises. Their checksums are compared if there are any; pages
of Spark, parquet-mr and this package have them.

Invariant: a damaged file is an error of this package, and every row group has as many rows as the footer says.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from delta_variant import nested
from delta_variant.buffers import buffers_of
from delta_variant.errors import DamagedFileError, DeltaVariantError, TableError, UnsupportedFeatureError
from delta_variant.parquet import footer as footers

_ASCII, _SHORT = 0x7F, 64
_AHEAD = 1 << 16  # as pyarrow does: the footer of most files with one request to the storage
_ABOUT_BYTES = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowMemoryError)
_LACKS = re.compile("not supported|not built|not yet implemented", re.IGNORECASE)
"""pyarrow raises OSError for some features that it lacks, such as the codec LZO."""
_WIDE = re.compile(r"Decimal(?:128|256)::FromBigEndian was (?!0\b)|Invalid BYTE_ARRAY length for decimal")
"""pyarrow raises ArrowInvalid for a decimal in more than 16 bytes, which Parquet allows for every precision."""
MAX_ROWS = 1 << 20
"""The most rows of a batch. pyarrow reserves memory for as many rows as it is asked for."""


class CountedFile(io.RawIOBase):
    """A file that counts the bytes that are read from it, and remembers whether its storage failed."""

    def __init__(self, file: pa.NativeFile) -> None:
        self._file, self.count = file, 0
        self.error: OSError | None = None
        """What the storage raised. Other OSErrors of pyarrow are about the bytes."""

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._file.read(len(buffer))
        except OSError as error:
            self.error = error
            raise
        buffer[: len(data)] = data
        self.count += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        self._file.close()
        super().close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def opened(source: Any, footer: bytes | None = None, **options: Any) -> pq.ParquetFile:
    """Opens a file: reads its footer, and later the pages that are asked for.

    footer: that of the file as `footer.of` returned it, if it has been read. options: those of ParquetFile. VARIANT groups are
    structs. INT96 is in microseconds: in nanoseconds some of its years overflow. Raises as `footer.of`, and DamagedFileError
    for a schema that pyarrow cannot read.
    """
    footer = footers.of(source, _AHEAD) if footer is None else footer
    with reading():
        metadata = pq.read_metadata(pa.BufferReader(footers.MAGIC + footers.joined(footer)))
        _ = metadata.created_by  # a text that may not be UTF-8
        return pq.ParquetFile(
            source,
            metadata=metadata,
            arrow_extensions_enabled=False,
            page_checksum_verification=True,
            coerce_int96_timestamp_unit="us",
            **options,
        )


def missing(schema: pa.Schema, name: str) -> Any:
    """A dataset of pyarrow's with one file, which is not there: its name is in the error of whatever reads it."""
    import pyarrow.dataset as ds  # noqa: PLC0415  # which tasks do without
    from pyarrow import fs  # noqa: PLC0415

    form, system = ds.ParquetFileFormat(), fs.LocalFileSystem()
    return ds.FileSystemDataset([form.make_fragment(name, system)], schema, form, system)


def batches(
    file: pq.ParquetFile,
    rows: int,
    row_groups: Sequence[int] | None = None,
    columns: Sequence[str] | Sequence[int] | None = None,
    *,
    use_threads: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The rows of some row groups, by default of all, in batches of at most `rows`.

    columns: names, or the numbers of leaf columns; None for all. use_threads: whether Arrow's threads decode them. Raises
    DamagedFileError if there are more or fewer rows than the footer says, and what pyarrow raises: see `reading`.
    """
    groups = range(file.metadata.num_row_groups) if row_groups is None else row_groups
    left = sum(file.metadata.row_group(number).num_rows for number in groups)
    rows = min(rows, MAX_ROWS)
    if columns and isinstance(columns[0], int):  # its other name is its path, which the names of other columns may be part of
        found = file.reader.iter_batches(rows, list(groups), columns, use_threads)
    else:
        found = file.iter_batches(rows, groups, columns, use_threads)
    for batch in found:
        left -= batch.num_rows
        yield batch
    if left:
        raise DamagedFileError(f"the pages have {'fewer' if left > 0 else 'more'} rows than the footer says")


def check_texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch. Raises UnsupportedFeatureError if it has strings that are not UTF-8, which Arrow does not have.

    Spark writes such strings: CAST(X'FFFE' AS STRING) is one. pyarrow reads them without a check. Damage may give them too,
    since pages may have no checksums.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not _are_utf8(column):
            raise UnsupportedFeatureError(
                f"column {name} has a string that is not valid UTF-8, as Spark may write it but Arrow cannot hold it",
                advice="select other columns, or read the file with Spark",
            )
    return batch


def _are_utf8(array: pa.Array) -> bool:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _are_utf8(array.dictionary)
    if nested.is_nested(kind):
        return all(map(_are_utf8, nested.arrays(array)))
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return True
    ends, data = buffers_of(array)
    size = ends[-1] - ends[0]
    # A look at all bytes takes 0.15 to 0.4 of the time of pyarrow's check of each string, and 1.8 for strings of 400 bytes.
    if size <= _SHORT * len(array) and not (data[ends[0] : ends[-1]] > _ASCII).any():
        return True
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


@contextlib.contextmanager
def reading(source: CountedFile | None = None) -> Iterator[None]:
    """In the `with` block, an error that pyarrow raises for the bytes of a file becomes that of `error_of`.

    source: the file, if it may be in a remote storage, whose errors have no number.
    """
    try:
        yield
    except (*_ABOUT_BYTES, UnicodeDecodeError) as error:
        raise error_of(error) from error
    except OSError as error:
        if error.errno is not None or (source is not None and source.error is not None):
            raise
        raise error_of(error) from error


def error_of(error: Exception) -> DeltaVariantError:
    """What an error that pyarrow raises for a file's bytes says about the file.

    UnsupportedFeatureError for what pyarrow lacks, such as a codec, or decimals in more than 16 bytes, although damaged bytes
    may spell that too; TableError if there is no memory for a page; else DamagedFileError.
    """
    lacks = {OSError: _LACKS, pa.ArrowInvalid: _WIDE}
    if isinstance(error, pa.ArrowNotImplementedError) or any(
        isinstance(error, kind) and text.search(str(error)) for kind, text in lacks.items()
    ):
        return UnsupportedFeatureError(f"the file has something that pyarrow cannot read, or is damaged: {error}")
    if isinstance(error, pa.ArrowMemoryError):
        return TableError(f"there is no memory for a page of the file, which is large or damaged: {error}")
    return error if isinstance(error, DamagedFileError) else DamagedFileError(f"the file is damaged: {error}")

"""Reads pieces of Parquet files for one task: pieces in, record batches of the columns of all files out.

Row groups belong to the piece in which they begin. Memory holds one batch: its rows are as many as took about 8 MiB in the
batch before, decoded, since dictionaries can make the pages of a row group arbitrarily smaller than its values. A row group is
read from its beginning again if its batches turn out to be much too large, or to be those of the first few rows of the task.

Invariant: every row of a file is in exactly one of its pieces, and the errors of a file name it, and the row of the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from delta_variant.buffers import size_of
from delta_variant.errors import DamagedFileError, DeltaVariantError, InvalidLayoutError, MalformedVariantError, TableError
from delta_variant.locating import in_rows
from delta_variant.parquet import footer as footers
from delta_variant.parquet.columns import is_between, opened
from delta_variant.parquet.fitting import fitted, is_legacy
from delta_variant.parquet.footer import Names
from delta_variant.parquet.opening import CountedFile, batches, reading
from delta_variant.parquet.physical import exact_schema, with_types
from delta_variant.parquet.tables import beside, unshredded
from delta_variant.parquet_files.spark_schema import FileColumns
from delta_variant.paths import ColumnPath
from delta_variant.pieces import Piece, opener
from delta_variant.storage import Storage

_BATCH_BYTES = 8 << 20
_BATCH_ROWS, _FIRST_ROWS = 1 << 14, 1 << 4
"""The most rows of a batch, also while nothing is known of their size."""
_TOO_LARGE = 4  # times


@dataclass(frozen=True)
class ParquetFiles:
    """How the files are read; the same for all pieces."""

    storages: tuple[Storage, ...]
    columns: frozenset[ColumnPath] | None
    """The VARIANT columns, in lower case; None for those that are annotated or have the structure of a layout."""
    dropped: frozenset[str]
    """Columns that are left out, in lower case."""
    schema: pa.Schema | None = None
    """The columns of the rows; None while they are not known."""
    for_spark: bool = False
    """Whether a value in a Variant that Spark cannot read is an error here, with its row. It is one when it is written, too."""


class Reader:
    """Reads pieces for one task.

    batch_bytes: the size of a batch. first_rows: the rows of a batch while nothing is known of their size.
    """

    def __init__(self, files: ParquetFiles, *, batch_bytes: int = _BATCH_BYTES, first_rows: int = _FIRST_ROWS) -> None:
        self._files, self._batch_bytes, self._first_rows = files, batch_bytes, first_rows
        self._schema = pa.schema([]) if files.schema is None else files.schema
        self._file_system = opener(files.storages)
        self._row_bytes = 0.0

    def batches(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of pieces, followed by the columns of their piece.

        rows: batches whose first column has pieces. Raises InvalidSchemaError, InvalidLayoutError, MalformedVariantError,
        UnsupportedFeatureError and TableError, with the file; OSError if a second attempt may succeed.
        """
        for pieces in rows:
            for number, text in enumerate(pieces.column(0).to_pylist()):
                own = pieces.slice(number, 1).select(range(1, pieces.num_columns))
                for batch in self.rows(Piece.of(text)):
                    yield beside(batch, own)

    def rows(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The rows of a piece, with the columns of all files."""
        with self._opened(piece) as (file, columns):
            whole, variants = pa.struct(list(self._schema)), columns.variants

            def is_variant(_kind: pa.DataType, names: Names) -> bool:
                return names in variants

            exact, legacy = exact_schema(file, is_variant), is_legacy(file.metadata)
            first_row = 0
            for number in range(file.metadata.num_row_groups):
                group = file.metadata.row_group(number)
                if is_between(group, piece.start, piece.end):
                    row = first_row
                    for read in self._read(file, number):
                        batch = unshredded(with_types(read, exact), is_variant, row, for_spark=self._files.for_spark)
                        fit = partial(_fitted, kind=whole, is_legacy=legacy)
                        yield in_rows(fit, batch, row)
                        row += batch.num_rows
                first_row += group.num_rows

    def columns(self, piece: Piece) -> pa.Schema:
        with self._opened(piece) as (_, columns):
            return columns.schema

    def _read(self, file: pq.ParquetFile, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of a row group, as pyarrow reads them."""
        group, done = file.metadata.row_group(number), 0
        while done < group.num_rows:
            end, rows, is_first = 0, self._batch_rows(group), not self._row_bytes
            for read in batches(file, rows, [number], use_threads=False):
                end += read.num_rows
                if end <= done:
                    continue
                new = read.slice(read.num_rows - (end - done))
                done = end
                self._row_bytes = max(1.0, size_of(new) / new.num_rows)
                yield new
                if is_first or self._batch_rows(group) * _TOO_LARGE < rows:
                    break

    def _batch_rows(self, group: pq.RowGroupMetaData) -> int:
        encoded = group.total_byte_size / max(1, group.num_rows)
        most = _BATCH_ROWS if self._row_bytes else self._first_rows
        return max(1, min(most, int(self._batch_bytes / max(1.0, encoded, self._row_bytes))))

    @contextmanager
    def _opened(self, piece: Piece) -> Iterator[tuple[pq.ParquetFile, FileColumns]]:
        """Opens a file. Errors in the `with` block get its name."""
        storage, system = self._files.storages[piece.storage], self._file_system(piece)
        try:
            with CountedFile(system.open_input_file(piece.path)) as source, reading(source):
                if (size := source.seek(0, os.SEEK_END)) != piece.size:
                    raise TableError(
                        f"it had {piece.size:,} bytes when it was listed, and has {size:,} now: convert files that do "
                        "not change any more, and begin again"
                    )
                footer = footers.of(source)
                file = opened(source, footer)
                yield file, FileColumns(file, footers.variant_groups(footer), self._files.columns, self._files.dropped)
        except DeltaVariantError as error:
            is_guess = self._files.columns is None and isinstance(error, InvalidLayoutError | MalformedVariantError)
            if is_guess and not isinstance(error, DamagedFileError):
                error.advice = "columns=[…] says which columns are VARIANT"
            raise error.within(piece.name) from error
        except OSError as error:
            reason = f"cannot read {piece.name}: {error}"
            if storage.scheme == "file" or isinstance(error, FileNotFoundError) or storage.explained(error) is not None:
                raise TableError(reason) from error
            raise OSError(reason) from error


def _fitted(batch: pa.RecordBatch, kind: pa.StructType, *, is_legacy: bool) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(fitted(batch.to_struct_array(), kind, is_legacy=is_legacy))

"""Streams record batches into one Parquet file with pyarrow, and gives its VARIANT groups their logical type.

In: batches of one physical Arrow schema, shredded structs included, and the names of their VARIANT groups. Out: a file.
pyarrow makes a row group of every call, so batches are collected up to the size of a row group. What pyarrow writes when it is
closed (page indexes and the footer) is held back, and the footer is edited (`footer`).

A thread encodes a row group while the rows of the next one come in. The first row group is encoded at once, since sizes are
estimated by it, and the last one when the file is closed: a file of two row groups has no thread.

Invariants: those of the package. Memory holds two row groups. After an error, no readable file is left behind.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from threading import Thread, current_thread
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from delta_variant.buffers import floats, size_of
from delta_variant.errors import InvalidSchemaError, UnsupportedFeatureError
from delta_variant.parquet import encodings
from delta_variant.parquet import footer as footers
from delta_variant.parquet.footer import Names
from delta_variant.parquet.stubs import Stubs
from delta_variant.paths import dotted

if TYPE_CHECKING:
    from typing_extensions import Self

ROW_GROUP_BYTES = 80 << 20
ROW_GROUP_ROWS = 1 << 20
_CODECS = {
    "none": (0, None),
    "snappy": (1, "snappy"),
    "gzip": (2, "gzip"),
    "brotli": (4, "brotli"),
    "zstd": (6, "zstd"),
    "lz4": (7, "lz4_raw"),
}
"""The number of a compression in Parquet, and its name in pyarrow."""
PARQUETS_NAMES = {"uncompressed": "none", "lz4_raw": "lz4"}
"""The names that Parquet and Spark have for some of them."""
_VARIANT_LEVEL = 3
"""The level of zstd for the bytes of Variants, `metadata` and `value`. Other columns have Arrow's default, level 1."""
_BUFFER_BYTES = 1 << 20  # pyarrow writes page by page, and each call into Python takes 17 µs


class FileWriter:
    """Writes record batches into one Parquet file, and a row group as soon as there are enough rows for one.

    sink: a path, which is opened here and removed if writing fails, or an open binary file, to which a thread writes, and which
    the caller closes. schema: the physical schema of every batch; field ids are taken from `PARQUET:field_id`. variants: the
    VARIANT groups, each as the names that lead to it. annotates: whether they get the logical type VARIANT. closed: those of
    them, at the top or in structs, whose objects are closed as far as there is room (`parquet.stubs`). compression: zstd,
    snappy, gzip, lz4, brotli or none, which None means too. row_group_bytes: the size of a row group in Arrow bytes. metadata:
    key-value pairs for the footer. Raises InvalidSchemaError if a group of `variants` is not a VARIANT column of the schema,
    UnsupportedFeatureError for other compressions. Arrow's writer trusts the buffers of the batches: call
    `batch.validate(full=True)` for batches of unknown origin.

    >>> import pyarrow as pa, delta_variant as dv
    >>> events = dv.shredding.shred(dv.arrow.VariantArray.from_pylist([{"id": 1}]), "id bigint")
    >>> batch = pa.record_batch([events], ["v"])
    >>> with dv.parquet.FileWriter("events.parquet", batch.schema, variants=[("v",)]) as writer:
    ...     writer.write(batch)
    """

    def __init__(
        self,
        sink: str | os.PathLike[str] | IO[bytes] | Any,
        schema: pa.Schema,
        *,
        variants: Collection[Names] = (),
        annotates: bool = True,
        closed: Collection[Names] = (),
        compression: str | None = "zstd",
        row_group_bytes: int = ROW_GROUP_BYTES,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self._schema = schema.remove_metadata()
        self._variants, self._annotates = frozenset(variants), annotates
        leaves = list(encodings.columns(encodings.sample([], self._schema)))
        self._floats = {number: names for number, (names, values) in enumerate(leaves) if _is_floating(values.type)}
        self._to_floats = {names[:length] for names in self._floats.values() for length in range(len(names) + 1)}
        names = {names for names, _ in leaves}
        for group in self._variants:
            if (*group, "metadata") not in names:
                raise InvalidSchemaError(f"{dotted(group)} is not a VARIANT column of the schema to be written")
        given = "none" if compression is None else str(compression).lower()
        self._compression = PARQUETS_NAMES.get(given, given)
        if self._compression not in _CODECS:
            raise UnsupportedFeatureError(f"compression={compression!r} is not one of {', '.join(_CODECS)}")
        self._variant_level = _VARIANT_LEVEL if self._compression == "zstd" else None
        self._row_group_bytes = row_group_bytes
        self._metadata = dict(metadata or {})
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0  # of the pending rows
        self._encoding: _Encoding | None = None  # the row group that a thread encodes
        self._encoding_bytes = self._flushed = self._written = 0
        self._groups = 0
        self._with_nan: set[tuple[int, int]] = set()  # column chunks, by the numbers of row group and leaf column
        self._path = Path(sink) if isinstance(sink, (str, os.PathLike)) else None
        self._sink = _Sink(self._path.open("wb") if self._path else sink)
        self._buffer = pa.BufferedOutputStream(pa.PythonFile(self._sink, mode="w"), _BUFFER_BYTES)
        self._stubs: Stubs | None = None
        self._open = True
        if closed:
            number, name = _CODECS[self._compression]
            with self._abort_on_error():
                codec = name and pa.Codec(name, compression_level=self._variant_level)
                self._stubs = Stubs(self._schema, closed, self._buffer, number, codec)

    def write(self, batch: pa.RecordBatch) -> None:
        """Adds rows. Raises InvalidSchemaError if they do not have the file's schema, ValueError after `close` or `abort`."""
        with self._abort_on_error():
            if not batch.schema.equals(self._schema):
                raise InvalidSchemaError(f"a batch must have the file's schema\n{self._schema}\nbut has\n{batch.schema}")
            rows = batch.num_rows * self._row_group_bytes // max(1, size_of(batch))
            rows = min(max(1, rows), ROW_GROUP_ROWS)
            for start in range(0, batch.num_rows, rows):
                self._add(batch.slice(start, rows))

    def close(self) -> int:
        """Writes the last row group and the footer. Returns the size of the file in bytes."""
        if self._open:
            with self._abort_on_error():
                self._finish_row_group()
                self._encode(self._taken())
                self._write_footer()
                self._finish_row_group()
        return self._written

    @property
    def file_bytes(self) -> int:
        """The size of the file so far in bytes: the row groups that are written."""
        return self._written

    @property
    def flushed_bytes(self) -> int:
        """The Arrow bytes of the row groups that are written."""
        return self._flushed

    @property
    def buffered_bytes(self) -> int:
        """The Arrow bytes of the row group that is encoded, and of the rows that wait until their row group is full."""
        return self._encoding_bytes + self._bytes

    def abort(self) -> None:
        """Stops without writing a footer, and removes a file that was opened here."""
        if not self._open:
            return
        self._open = False
        self._pending.clear()
        self._sink.mute()
        try:
            if self._encoding not in (None, current_thread()):  # a thread may drop the last reference
                self._encoding.join()
            if self._writer is not None:
                with contextlib.suppress(Exception):  # the caller must see the error that led to this call
                    self._writer.close()
        finally:
            if self._path is not None:
                self._sink.file.close()
                self._path.unlink(missing_ok=True)

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self.abort()  # pyarrow would write a footer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    @contextlib.contextmanager
    def _abort_on_error(self) -> Iterator[None]:
        if not self._open:
            raise ValueError("this FileWriter is closed")
        try:
            yield
        except BaseException:
            self.abort()
            raise

    def _add(self, part: pa.RecordBatch) -> None:
        size = size_of(part)
        full = self._rows + part.num_rows > ROW_GROUP_ROWS or self._bytes + size > self._row_group_bytes
        if full and self._pending:
            self._write_row_group()
        self._pending.append(part)
        self._rows += part.num_rows
        self._bytes += size

    def _write_row_group(self) -> None:
        """Begins to encode the pending rows. The first row group is written afterwards; others may not be."""
        self._finish_row_group()
        encode = partial(self._encode, self._taken())
        if self._groups:
            encoding = _Encoding(encode)
            with contextlib.suppress(RuntimeError):  # there may be no more threads
                encoding.start()
                self._encoding = encoding
        if self._encoding is None:
            encode()
            self._finish_row_group()

    def _taken(self) -> list[pa.RecordBatch]:
        """The pending rows, as the row group that is encoded."""
        rows, self._pending, self._encoding_bytes = self._pending, [], self._bytes
        self._rows = self._bytes = 0
        return rows

    def _finish_row_group(self) -> None:
        """Waits until the row group that is encoded is written."""
        if self._encoding is not None:
            self._encoding.join()
            encoding, self._encoding = self._encoding, None
            encoding.check()
        self._flushed += self._encoding_bytes
        self._encoding_bytes, self._written = 0, self._sink.size

    def _encode(self, batches: list[pa.RecordBatch]) -> None:
        """Writes a row group; nothing if there are no rows."""
        if self._stubs and batches:
            batches = self._stubs.moved(batches, (self._flushed + self._encoding_bytes) // (self._groups + 1))
        if self._writer is None:
            self._writer = self._parquet_writer(batches)
        if batches:
            self._find_nan(batches)
            table = pa.Table.from_batches(batches, self._schema)
            self._writer.write_table(table, row_group_size=table.num_rows)
            if self._stubs:
                self._stubs.write()
            self._buffer.flush()

    def _write_footer(self) -> None:
        assert self._writer is not None
        if self._metadata:
            self._writer.add_key_value_metadata(self._metadata)
        if self._stubs:
            self._stubs.finish()
        self._sink.hold_back()
        self._writer.close()
        self._buffer.flush()
        self._sink.release(self._annotated)
        if self._path is not None:
            self._sink.file.close()
        self._open = False

    def _annotated(self, footer: bytes) -> bytes:
        footer = footers.annotated(footer, self._variants) if self._annotates else footer
        footer = footers.with_safe_floats(footer, self._floats, self._with_nan) if self._floats else footer
        stubs = self._stubs.fields() if self._stubs else {}
        return footers.with_fields(footer, stubs) if stubs else footer

    def _find_nan(self, batches: list[pa.RecordBatch]) -> None:
        """Records the columns of a row group that contain a NaN."""
        for batch in batches if self._floats else ():
            for names, values in encodings.columns(batch.to_struct_array(), within=self._to_floats):
                if _has_nan(values):
                    self._with_nan |= {(self._groups, number) for number, name in self._floats.items() if name == names}
        self._groups += 1

    def _parquet_writer(self, batches: list[pa.RecordBatch]) -> pq.ParquetWriter:
        sample = encodings.sample(batches, self._schema)
        columns = [(".".join(names), names, values) for names, values in encodings.columns(sample)]
        count = Counter(name for name, *_ in columns)  # pyarrow cannot tell the column `a.b` from the field b of a
        columns = [column for column in columns if count[column[0]] == 1]
        chosen = {name: encodings.encoding(values) for name, _, values in columns}
        return pq.ParquetWriter(
            self._buffer,
            self._schema,
            compression=self._compression,
            compression_level=self._levels(names for _, names, _ in columns),
            use_dictionary=[name for name, encoding in chosen.items() if encoding == "DICTIONARY"],
            column_encoding={name: encoding for name, encoding in chosen.items() if encoding != "DICTIONARY"},
            write_statistics=[name for name, names, _ in columns if not self._is_metadata(names)],
            write_page_index=True,
            write_page_checksum=True,
            store_schema=False,
            store_decimal_as_integer=True,
            use_compliant_nested_type=True,
        )

    def _levels(self, columns: Iterable[Names]) -> dict[str, int] | None:
        """The levels of compression that are not the default."""
        if self._variant_level is None:
            return None
        return {".".join(names): self._variant_level for names in columns if self._is_variant(names)}

    def _is_variant(self, names: Names) -> bool:
        """Whether a column has bytes of Variants."""
        return names[-1] in ("metadata", "value") and any(names[:length] in self._variants for length in range(len(names)))

    def _is_metadata(self, names: Names) -> bool:
        return names[-1] == "metadata" and names[:-1] in self._variants


def _is_floating(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind.value_type if pa.types.is_dictionary(kind) else kind))


def _has_nan(values: pa.Array) -> bool:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary
    numbers = floats(values)
    return bool(len(numbers) and np.isnan(numbers.min()))


class _Encoding(Thread):
    """A thread that encodes a row group."""

    def __init__(self, encode: Callable[[], None]) -> None:
        super().__init__()
        self._encode = encode
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._encode()
        except BaseException as error:  # noqa: BLE001  # `check` raises it
            self._error = error
        finally:
            del self._encode  # which refers to the FileWriter

    def check(self) -> None:
        """Raises the error of the thread, which has ended."""
        error, self._error = self._error, None
        if error is not None:
            raise error


class _Sink:
    """The file that pyarrow writes to: passes bytes on, and holds the footer back until it is annotated."""

    def __init__(self, file: Any) -> None:
        self.file, self.size, self.closed = file, 0, False
        self._held: list[bytes] | None = None
        self._muted = False

    def write(self, data: bytes) -> int:
        if self._held is not None:
            self._held.append(data)
        elif not self._muted:
            self.file.write(data)
            self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Does nothing: the file is flushed when it is closed."""

    def close(self) -> None:
        self.closed = True

    def mute(self) -> None:
        self._held, self._muted = None, True

    def hold_back(self) -> None:
        self._held = []

    def release(self, edit: Callable[[bytes], bytes]) -> None:
        before, footer = footers.split(b"".join(self._held or ()))
        self._held = None
        self.write(before + footers.joined(edit(footer)))

"""The files of the index: Parquet, in a directory of the table for each path, with one row for each data file.

In: the filters of some data files. Out: one file, written once and never changed. Source: `protocol/README.md`, "The index of
values", I1. Pages have checksums, so that a damaged file is noticed.

Invariants: a file is complete when it can be seen under its name. It has entries of one table, whose id it names: the directory
stays when a log is deleted, and the next table in this place may have other files under the same names.
"""

from __future__ import annotations

import io
import json
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from delta_variant.errors import DeltaVariantError
from delta_variant.membership.plan import DataFile, Path
from delta_variant.membership.values import hash_strings
from delta_variant.parquet.opening import batches, opened
from delta_variant.paths import normalized
from delta_variant.storage import Storage

DIRECTORY = "_delta_variant_index"
"""The directory of the index in that of the table. Delta's VACUUM leaves directories alone that begin with an underscore."""
FORMAT = "2"
_VERSION, _TABLE, _PATH = b"delta_variant.index", b"delta_variant.table", b"delta_variant.path"
_SCHEMA = pa.schema({
    "path": pa.string(), "size": pa.int64(), "time": pa.int64(), "budget": pa.float64(), "kind": pa.string(),
    "scale": pa.int32(), "values": pa.int64(), "words": pa.int32(), "filter": pa.binary(),
})  # fmt: skip
APPLICATION = "delta_variant.index"
"""A table that may have an index has a transaction identifier of this application."""
FLUSH_BYTES = 16 << 20
"""A task writes its filters when they have so many bytes."""
MANY = 16
"""The next analysis puts the small files of a path together if there are more than this."""
_SETTLED = timedelta(days=1)
_BATCH_ROWS = 1 << 10
ENTRY_SIZE = 256
"""The bytes of a row beside its filter, with its share of the file's footer."""


@dataclass(frozen=True)
class Entry:
    """The entry of the index for one path of one data file."""

    file: DataFile
    budget: float
    """The share of the file's bytes that the filter had room in."""
    kind: str
    """`string`, `exact`, `mixed` (values of several types, or of one without filters) or `small` (no room for a filter)."""
    scale: int = 0
    """How many decimal places exact numbers need."""
    values: int = 0
    words: int = 0
    """The number of words of a full column of the filter."""
    filter: bytes | None = None


def path_text(column: Sequence[str], keys: Sequence[str]) -> str:
    """The text that identifies a path: its column's physical names, and its keys.

    >>> print(path_text(("v",), ("commit", "cid")))
    [["v"],"$['commit']['cid']"]
    """
    return json.dumps([list(column), normalized(tuple(keys))], ensure_ascii=False, separators=(",", ":"))


def directory(column: Sequence[str], keys: Sequence[str]) -> str:
    """The directory of a path's files, relative to the table's."""
    hashes = hash_strings(pa.array([path_text(column, keys)]))
    assert hashes is not None
    return f"{DIRECTORY}/{np.uint64(hashes[0]):016x}"


class Sidecars:
    """The files of the index of one table. table: its id.

    The entries of many data files are written as a file for each path, and another one whenever filters have FLUSH_BYTES.
    """

    def __init__(self, location: Storage, system: fs.FileSystem, table: str) -> None:
        self._location, self._system, self._table = location, system, table
        self._waiting: dict[Path, list[Entry]] = defaultdict(list)
        self._bytes = 0
        self.written = 0
        """The bytes that are written."""

    def add(self, entries: Mapping[Path, Entry]) -> None:
        for path, entry in entries.items():
            self._waiting[path].append(entry)
            self._bytes += len(entry.filter or b"")
        if self._bytes >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        for path, entries in self._waiting.items():
            self.written += self.write(path, entries)
        self._waiting.clear()
        self._bytes = 0

    def write(self, path: Path, entries: Collection[Entry]) -> int:
        """Writes a file with some entries of a path. Returns its size in bytes."""
        rows = [entry.file._asdict() | vars(entry) for entry in entries]
        sink = io.BytesIO()
        compression = {name: "none" if name == "filter" else "zstd" for name in _SCHEMA.names}
        with pq.ParquetWriter(
            sink, _SCHEMA, compression=compression, use_dictionary=["kind"], write_statistics=False, store_schema=False,
            write_page_checksum=True,
        ) as writer:  # fmt: skip
            writer.write_table(pa.Table.from_pylist(rows, _SCHEMA))
            writer.add_key_value_metadata(self._about(path))
        folder, name = self._folder(path), f"{uuid.uuid4()}.parquet"
        if self._location.has_directories:
            self._system.create_dir(folder)
        # Where files can be seen before they are complete, they get their name when they are.
        target = f"{folder}/{'.' * self._location.has_directories}{name}"
        with self._system.open_output_stream(target) as stream:
            stream.write(sink.getbuffer())
        if self._location.has_directories:
            self._system.move(target, f"{folder}/{name}")
        return sink.tell()

    def listed(self, path: Path) -> Iterator[fs.FileInfo]:
        """The files of the index at a path."""
        for info in self._system.get_file_info(fs.FileSelector(self._folder(path), allow_not_found=True)):
            if info.type == fs.FileType.File and info.base_name.endswith(".parquet") and not info.base_name.startswith("."):
                yield info

    def read(self, name: str, path: Path, *, filters: bool = False) -> list[Entry]:
        """The entries of one file of the index, by default without filters.

        There are none if it cannot be read, or is of another version, table or path.
        """
        about, entries = _read(self._system, name, filters=filters)
        return entries if self._is_of(about, path) else []

    def entries(self, path: Path, *, filters: bool = False) -> Iterator[Entry]:
        """The entries of a path in all of its files, as `read` gives them."""
        for info in self.listed(path):
            yield from self.read(info.path, path, filters=filters)

    def compact(self, path: Path, files: Collection[DataFile]) -> None:
        """Puts the small files of a path together if they are many, without the entries of data files that have left the table.

        files: the table's data files. A file is left alone if it is younger than a day and has an entry of another data file,
        since that one may be about to be committed. Older files of other tables, and of older versions, are deleted. A reader
        that finds a file of the index gone skips none of its data files.
        """
        settled = datetime.now(timezone.utc) - _SETTLED
        small, outdated = [], []
        for info in self.listed(path):
            about, entries = _read(self._system, info.path, filters=False)
            if self._is_outdated(about) and info.mtime < settled:
                outdated.append(info.path)
            if not self._is_of(about, path):
                continue
            dead = sum(entry.file not in files for entry in entries)
            worth = info.size < FLUSH_BYTES // 2 or 2 * dead > len(entries)
            if entries and worth and (not dead or info.mtime < settled):
                small.append(info.path)
        if len(small) > MANY:
            self._put_together(small, path, files)
            outdated += small
        for name in outdated:
            with suppress(FileNotFoundError):  # another driver did the same
                self._system.delete_file(name)

    def _put_together(self, small: Sequence[str], path: Path, files: Collection[DataFile]) -> None:
        """Writes the entries of these data files once more: for each data file the one with the largest filter."""
        best: dict[DataFile, tuple[int, str]] = {}  # of each data file, the bytes of its largest filter, and where it is
        for name in small:
            for entry in _read(self._system, name, filters=True)[1]:
                size = len(entry.filter or b"")
                if entry.file in files and size >= best.get(entry.file, (0, ""))[0]:
                    best[entry.file] = size, name
        for name in small:
            for entry in _read(self._system, name, filters=True)[1]:
                if best.get(entry.file) == (len(entry.filter or b""), name):
                    self.add({path: entry})
        self.flush()

    def _folder(self, path: Path) -> str:
        return f"{self._location.root}/{directory(*path)}"

    def _about(self, path: Path) -> dict[bytes, str]:
        """The metadata in the footer of a file with the entries of a path."""
        return {_VERSION: FORMAT, _TABLE: self._table, _PATH: path_text(*path)}

    def _is_of(self, about: Mapping[bytes, bytes], path: Path) -> bool:
        """Whether a file with this metadata has the entries of a path."""
        return all(about.get(key) == text.encode() for key, text in self._about(path).items())

    def _is_outdated(self, about: Mapping[bytes, bytes]) -> bool:
        """Whether a file with this metadata is of an older version, or of this version and another table."""
        version = about.get(_VERSION, b"")
        if version == FORMAT.encode():
            return about.get(_TABLE) != self._table.encode()
        return version.isdigit() and int(version) < int(FORMAT)


def _read(system: fs.FileSystem, path: str, *, filters: bool) -> tuple[Mapping[bytes, bytes], list[Entry]]:
    """The metadata in the footer of a file of the index, and its entries; nothing if it cannot be read."""
    try:
        with system.open_input_file(path) as source, opened(source) as file:
            about: Mapping[bytes, bytes] = file.metadata.metadata or {}
            if file.schema_arrow.names != _SCHEMA.names:
                return about, []
            columns = [name for name in _SCHEMA.names if filters or name != "filter"]
            rows = [row for batch in batches(file, _BATCH_ROWS, columns=columns) for row in batch.to_pylist()]
            rows = [row for row in rows if all(value is not None or name == "filter" for name, value in row.items())]
    except (DeltaVariantError, OSError, pa.ArrowException):
        return {}, []
    return about, [Entry(DataFile(*map(row.pop, DataFile._fields)), **row) for row in rows]

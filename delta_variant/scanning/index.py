"""The index of values of a table (`membership`), for files that bounds keep.

In: a path and constants. Out: whether a data file may have one of them. Source: `protocol/README.md`, "The index of values", I1
to I4. The filters of a path are read when the first predicate asks for it.

Invariant: what is missing, damaged or too large to read says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyarrow import fs

from delta_variant.membership import ribbon
from delta_variant.membership.plan import DataFile
from delta_variant.membership.sidecars import Entry, Sidecars
from delta_variant.membership.values import EXACT, STRING, hash_numbers, hash_strings
from delta_variant.queries.bounds import indexed_scale
from delta_variant.queries.predicates import Path
from delta_variant.scanning.log import File
from delta_variant.storage import Storage

MAX_BYTES = 128 << 20
"""The files of a path are not read if they have more bytes together."""
_AT_ONCE = 16


class Index:
    """The filters of a table's files, by path. table: the id of the table."""

    def __init__(self, storage: Storage, system: fs.FileSystem, table: str) -> None:
        self._sidecars = Sidecars(storage, system, table)
        self._entries: dict[tuple[tuple[str, ...], tuple[str, ...]], dict[DataFile, Entry]] = {}
        self._hashes: dict[int, tuple[Sequence[Any], Any]] = {}

    def may_have(self, file: File, path: Path, values: Sequence[Any]) -> bool | None:
        """Whether a file may have one of the values at a path; None if it has no filter that can say so.

        values: in the type that the path is compared in, as `casts.values_of` has them, at least one, without NULLs. It is the
        same list for every file.
        """
        scale, entry = indexed_scale(path), self._of(path).get(DataFile(file.path, file.size, file.modification_time))
        if scale is None or entry is None or entry.filter is None or entry.words < 1:
            return None
        if entry.kind != (STRING if scale < 0 else EXACT) or entry.scale > max(0, scale):
            return None
        hashes = self._hashes_of(values, is_text=scale < 0)
        return None if hashes is None else bool(ribbon.contains(entry.filter, entry.words, hashes).any())

    def _hashes_of(self, values: Sequence[Any], *, is_text: bool) -> Any:
        """The hashes of constants, computed once for all files; None if there are none."""
        if id(values) not in self._hashes:
            hashes = None
            with suppress(pa.ArrowInvalid):
                if is_text:
                    hashes = hash_strings(pa.array(values, pa.string()))
                else:
                    numbers = [Decimal(value) for value in values]
                    scale = max(max(0, -int(number.as_tuple().exponent)) for number in numbers)
                    hashes = hash_numbers(pa.array(numbers, pa.decimal128(38, scale)))
            self._hashes[id(values)] = values, hashes  # the list stays, so that no other one gets its id
        return self._hashes[id(values)][1]

    def _of(self, path: Path) -> dict[DataFile, Entry]:
        key = (path.column, path.keys)
        if key not in self._entries:
            self._entries[key] = self._read(key)
        return self._entries[key]

    def _read(self, path: tuple[tuple[str, ...], tuple[str, ...]]) -> dict[DataFile, Entry]:
        """The entries of a path that have a filter, by data file."""
        found: list[fs.FileInfo] = []
        with suppress(OSError):
            found += self._sidecars.listed(path)
        if not found or sum(info.size for info in found) > MAX_BYTES:
            return {}
        with ThreadPoolExecutor(min(_AT_ONCE, len(found))) as pool:
            read = pool.map(lambda info: self._sidecars.read(info.path, path, filters=True), found)
            return {entry.file: entry for entries in read for entry in entries if entry.filter is not None}

"""Deletion vectors: the descriptor in an Add action → the numbers of the deleted rows of a file.

Source: Delta PROTOCOL.md, "Deletion Vectors". A vector is in the log (`i`), or in a file that is named by a UUID (`u`) or by a
path (`p`). Its bytes are a magic number and a 64-bit Roaring bitmap in the portable format, which pyroaring reads.

Invariant: a vector whose length, checksum or number of rows is not what its descriptor says is an error. Rows are never
returned on a guess.
"""

from __future__ import annotations

import uuid
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyarrow import fs
from pyroaring import BitMap64

from delta_variant import z85
from delta_variant.errors import MalformedVariantError, TableError
from delta_variant.storage import Storage

_MAGIC = 1681511377
_UUID_DIGITS = 20
_VERSION = 1


@dataclass(frozen=True)
class DeletionVector:
    """The descriptor of a deletion vector."""

    storage_type: str
    """`u`, `p` or `i`."""
    path_or_inline: str
    """A random prefix and a UUID, a path, or the vector itself."""
    offset: int | None
    size: int
    cardinality: int

    @classmethod
    def of(cls, action: Any) -> DeletionVector | None:
        """The descriptor in an Add or a Remove action. Raises KeyError, TypeError or ValueError for one that is damaged."""
        found = action.get("deletionVector")
        if not found or found.get("storageType") is None:
            return None
        offset, storage_type, path_or_inline = found.get("offset"), str(found["storageType"]), str(found["pathOrInlineDv"])
        f"{storage_type}{path_or_inline}".encode()  # file systems, and the messages of streams, are UTF-8
        return cls(
            storage_type,
            path_or_inline,
            None if offset is None else int(offset),
            int(found["sizeInBytes"]),
            int(found["cardinality"]),
        )

    @property
    def id(self) -> str:
        """What tells two vectors of one file apart: `deletionVector.uniqueId` of the protocol."""
        return f"{self.storage_type}{self.path_or_inline}" + ("" if self.offset is None else f"@{self.offset}")

    def rows(self, storage: Storage, system: fs.FileSystem, count: int) -> npt.NDArray[np.uint64]:
        """The numbers of the deleted rows, ascending. Raises TableError for a vector that is gone or damaged.

        count: the rows of the file.
        """
        try:
            data = self._inline() if self.storage_type == "i" else self._stored(self._file(storage), system)
        except FileNotFoundError:
            raise TableError(f"{storage.name}: the deletion vector {self._file(storage)} is gone: VACUUM deletes those of old "
                             "versions: scan a newer version") from None  # fmt: skip
        except (MalformedVariantError, ValueError) as error:
            raise self._damaged(str(error)) from None
        if int.from_bytes(data[:4], "little") != _MAGIC:
            raise self._damaged("it does not begin with the magic number of a bitmap")
        try:
            bitmap = BitMap64.deserialize(data[4:])
        except ValueError as error:
            raise self._damaged(str(error)) from None
        if len(bitmap) != self.cardinality:
            raise self._damaged(f"it has {len(bitmap):,} rows, and the log says {self.cardinality:,}")
        if bitmap and bitmap.max() >= count:
            raise self._damaged(f"it deletes rows beyond the end of the file, which has {count:,}")
        return np.array(bitmap.to_array(), np.uint64)

    def _inline(self) -> bytes:
        data = z85.decode(self.path_or_inline)
        if not 0 <= self.size <= len(data):
            raise self._damaged(f"it has {len(data)} bytes, and the log says {self.size}")
        return data[: self.size]

    def _file(self, storage: Storage) -> str:
        if self.storage_type == "p":
            return storage.file(self.path_or_inline)
        if self.storage_type != "u" or len(self.path_or_inline) < _UUID_DIGITS:
            raise self._damaged("its descriptor has no known form")
        prefix, digits = self.path_or_inline[:-_UUID_DIGITS], self.path_or_inline[-_UUID_DIGITS:]
        name = f"deletion_vector_{uuid.UUID(bytes=z85.decode(digits))}.bin"
        return "/".join([storage.root, prefix, name] if prefix else [storage.root, name])

    def _stored(self, path: str, system: fs.FileSystem) -> bytes:
        with system.open_input_file(path) as file:
            if file.read_at(1, 0) != bytes([_VERSION]):
                raise self._damaged(f"{path} is not a file of deletion vectors of version 1")
            start = 1 if self.offset is None else self.offset
            if self.size < 0 or not 0 <= start <= file.size() - self.size - 8:
                raise self._damaged(f"{path} has {file.size():,} bytes")
            read = file.read_at(self.size + 8, start)
        size, data, checksum = read[:4], read[4:-4], read[-4:]
        if int.from_bytes(size, "big") != self.size:
            raise self._damaged(f"its size in {path}, at byte {start}, differs from that in the log")
        if zlib.crc32(data) != int.from_bytes(checksum, "big"):
            raise self._damaged(f"the checksum in {path} does not match")
        return bytes(data)

    def _damaged(self, reason: str) -> TableError:
        return TableError(f"the deletion vector {self.id[:60]} is damaged: {reason}: restore the file or the table")

"""The log of a Delta table, without Spark: a location and a version → `Snapshot`, the files of that version and the schema.

In: JSON commits and checkpoints of every kind (classic with one or several parts, V2 in JSON or Parquet with sidecars). Out:
the protocol, the metadata, and the Add actions that no later action removes. Source: Delta PROTOCOL.md, "Action
Reconciliation", "Checkpoints", "Table Features", "In-Commit Timestamps".

`_delta_log` is listed, so the hint `_last_checkpoint` is not read, and neither are compacted commits: a stale or damaged one
does no harm. deltalake 1.6 opens such tables, but neither shows the text of statistics, tags and deletion vectors nor reads
tables with the feature variantShredding.

Invariants: a file is identified by its path and its deletion vector. A reader feature that is not in the list below is refused
by name. A commit that is missing is an error, never a gap.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone, tzinfo
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from delta_variant.errors import DamagedFileError, DeltaVariantError, TableError, UnsupportedFeatureError
from delta_variant.parquet.opening import batches, error_of, opened
from delta_variant.parquet.physical import schema_without_views, with_types
from delta_variant.queries import casts, fields
from delta_variant.queries.evidence import AddAction
from delta_variant.scanning.deletion_vectors import DeletionVector
from delta_variant.storage import Storage

READER_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)
"""The reader features that `scan` follows."""
_MAX_READER_VERSION = 3
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(
    r"(?P<version>\d{20})\.checkpoint(\.(?P<part>\d{10})\.(?P<parts>\d{10})|\.(?P<id>[0-9a-fA-F-]{36}))?\.(?P<form>parquet|json)"
)
_AT_ONCE = 16
_ADD = ("path", "partitionValues", "size", "modificationTime", "stats", "stats_parsed", "tags", "deletionVector")
_ICT = "delta.enableInCommitTimestamps"
_ICT_SINCE = ("delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp")
_MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What actions raise whose fields are missing, of another type, too large or too deep."""


@dataclass(frozen=True)
class File(AddAction):
    """An Add action, and the rows that it deletes."""

    deletion_vector: DeletionVector | None

    @classmethod
    def of(cls, action: Mapping[str, Any]) -> File:
        """The file of an Add action. Raises one of `_MALFORMED` for a damaged one."""
        file = cls(
            action["path"],
            int(action.get("size") or 0),
            int(action.get("modificationTime") or 0),
            dict(action.get("partitionValues") or {}),
            action.get("stats"),
            dict(action.get("tags") or {}),
            action.get("stats_parsed"),
            DeletionVector.of(action),
        )
        _check(_is_text(file.path) and isinstance(file.stats_text, str | None), "paths and statistics that are texts")
        _check(_are_texts(file.partition) and _are_texts(file.tags), "partition values and tags that are texts")
        _check(isinstance(file.parsed, dict | None), "statistics that are a struct")
        return file


@dataclass(frozen=True)
class Snapshot:
    """One version of a table."""

    version: int
    protocol: Mapping[str, Any]
    metadata: Mapping[str, Any]
    files: list[File] = field(repr=False)

    @cached_property
    def properties(self) -> Mapping[str, str]:
        return dict(self.metadata.get("configuration") or {})

    @cached_property
    def mapping(self) -> str:
        """The mode of column mapping: none, id or name."""
        return self.properties.get("delta.columnMapping.mode", "none").lower()

    @cached_property
    def schema(self) -> fields.Struct:
        text = self.metadata.get("schemaString") or '{"type": "struct", "fields": []}'
        try:
            return fields.parse(json.loads(text), mapped=self.mapping != "none")
        except _MALFORMED as error:
            raise TableError(f"the table's schema in the log is damaged ({error!r}): restore the log") from error

    @cached_property
    def partition_columns(self) -> frozenset[str]:
        return frozenset(self.metadata.get("partitionColumns") or ())

    def check(self) -> None:
        """Raises one of _MALFORMED if the metadata is damaged, and TableError if its schema is."""
        fields.arrow_type(self.schema)
        hash(self.schema)  # which takes more of Python's stack than all that follows
        _check(self.mapping in {"none", "id", "name"}, "a known mode of column mapping")
        _check(_are_texts(self.properties), "properties that are texts")
        _check(self.partition_columns <= {field.name for field in self.schema.fields}, "partition columns in the schema")


@dataclass
class _State:
    """What is known after some actions."""

    storage: Storage
    protocol: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None
    files: dict[tuple[str, str | None], File] = field(default_factory=dict)

    def apply(self, actions: Iterable[Mapping[str, Any]]) -> None:
        """Applies the actions of one commit. The Adds and Removes of a commit have no order, and a Remove concerns what was
        there before."""
        added = []
        for action in actions:
            if (found := action.get("add")) is not None:
                added.append(found)
            elif (found := action.get("remove")) is not None:
                vector = DeletionVector.of(found)
                self.files.pop((self.storage.canonical(found["path"]), None if vector is None else vector.id), None)
            elif (found := action.get("metaData")) is not None:
                self.metadata = found
            elif (found := action.get("protocol")) is not None:
                self.protocol = found
        for add in added:
            self.add(add)

    def add(self, action: Mapping[str, Any]) -> None:
        file = File.of(action)
        vector = file.deletion_vector
        self.files[self.storage.canonical(file.path), None if vector is None else vector.id] = file


def _are_texts(found: Mapping[str, Any]) -> bool:
    return all(_is_text(name) and (value is None or _is_text(value)) for name, value in found.items())


def _is_text(value: Any) -> bool:
    """Whether a value is a text. Raises UnicodeEncodeError for one that has no UTF-8."""
    return isinstance(value, str) and (value.isascii() or bool(value.encode()))


def _check(holds: bool, what: str) -> None:
    if not holds:
        raise TypeError(f"it has no {what}")


def check_readable(table: str, protocol: Mapping[str, Any]) -> None:
    """Raises UnsupportedFeatureError, with the features, for a protocol that `scan` does not follow."""
    version, names = int(protocol.get("minReaderVersion") or 1), set(protocol.get("readerFeatures") or ())
    unknown = sorted(names - READER_FEATURES)
    if unknown:
        raise UnsupportedFeatureError(
            f"{table}: delta_variant.scan does not know the reader feature{'s' * (len(unknown) > 1)} {', '.join(unknown)}: "
            "read the table with Spark"
        )
    if version > _MAX_READER_VERSION:
        raise UnsupportedFeatureError(
            f"{table}: delta_variant.scan reads tables up to reader version 3, and this has {version}"
        )


class Log:
    """The log of a table: what `_delta_log` lists. Raises TableError if there is no table."""

    def __init__(self, storage: Storage, system: fs.FileSystem) -> None:
        self.table, self._storage, self._system, self._root = storage.name, storage, system, f"{storage.root}/_delta_log"
        self._commits, self._checkpoints = self._listed()
        if not self._commits and not self._checkpoints:
            raise TableError(f"{self.table} is not a Delta table: it has no _delta_log with commits: check the path")

    def _listed(self) -> tuple[dict[int, fs.FileInfo], dict[int, dict[tuple[str, ...], list[fs.FileInfo]]]]:
        """The commits by version, and the parts of checkpoints by version and kind."""
        commits: dict[int, fs.FileInfo] = {}
        checkpoints: dict[int, dict[tuple[str, ...], list[fs.FileInfo]]] = {}
        try:
            found = self._system.get_file_info(fs.FileSelector(self._root))
        except (FileNotFoundError, NotADirectoryError):
            return commits, checkpoints
        except (OSError, pa.ArrowException) as error:
            raise TableError(f"cannot list {self.table}/_delta_log: {error}") from error
        for info in found:
            if info.type != fs.FileType.File:
                continue
            commit, checkpoint = _COMMIT.fullmatch(info.base_name), _CHECKPOINT.fullmatch(info.base_name)
            if commit:
                commits[int(commit[1])] = info
            elif checkpoint and not (checkpoint["form"] == "json" and not checkpoint["id"]):
                kind = (checkpoint["parts"] or "", checkpoint["id"] or "")
                checkpoints.setdefault(int(checkpoint["version"]), {}).setdefault(kind, []).append(info)
        return commits, checkpoints

    @property
    def last(self) -> int:
        return max([*self._commits, *self._checkpoints])

    def snapshot(
        self, version: int | None = None, timestamp: str | datetime | None = None, at: tzinfo = timezone.utc
    ) -> Snapshot:
        """A version of the table: the newest, that with a number, or the one that was the newest at a time.

        at: the zone of a time without one.
        """
        if version is not None and timestamp is not None:
            raise TableError("scan takes a version or a timestamp, not both")
        if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
            raise TableError(f"version={version!r} is not a version: write a whole number")
        if timestamp is not None:
            moment = _moment(timestamp, at)
            try:
                version = self._version_at(moment)
            except DeltaVariantError:
                raise
            except (*_MALFORMED, OSError) as error:  # OSError: of a year that the system's clock lacks
                raise TableError(f"{self.table}: the times in _delta_log are damaged ({error!r}): restore the log") from error
        if version is not None and not 0 <= version <= self.last:
            raise TableError(f"{self.table} has no version {version}: the newest is {self.last}")
        return self._replayed(self.last if version is None else version)

    def _replayed(self, version: int) -> Snapshot:
        state = self._state(version)
        if state.protocol is None or state.metadata is None:
            raise TableError(f"{self.table}: the log has no protocol or no metadata up to version {version}: it is damaged")
        snapshot = Snapshot(version, state.protocol, state.metadata, list(state.files.values()))
        try:
            check_readable(self.table, snapshot.protocol)
            snapshot.check()
        except DeltaVariantError:
            raise
        except _MALFORMED as error:
            raise TableError(
                f"{self.table}: the protocol or the metadata in _delta_log is damaged ({error!r}): restore the log"
            ) from error
        return snapshot

    def _state(self, version: int) -> _State:
        errors: list[TableError] = []
        for start in self._starts(version):
            state, first = _State(self._storage), 0 if start is None else start[0] + 1
            is_loading = False
            try:
                self._check_commits(first, version)
                if start is not None:
                    is_loading = True
                    self._load(state, start[0], start[1])
                    is_loading = False
                self._apply(state, first, version)
            except TableError as error:
                errors.append(error)
            except _MALFORMED as error:
                errors.append(TableError(f"{self.table}: an action in _delta_log is damaged ({error!r}): restore the log"))
            else:
                return state
            if not is_loading:  # older checkpoints need the same commits; in place of a damaged one, an older one may do
                break
        raise errors[0]

    def _starts(self, version: int) -> Iterator[tuple[int, list[fs.FileInfo]] | None]:
        """The complete checkpoints up to a version, the newest first, and then the beginning."""
        for number in sorted((n for n in self._checkpoints if n <= version), reverse=True):
            for (parts, _), files in self._checkpoints[number].items():
                if not parts or len(files) == int(parts):
                    yield number, files
        yield None

    def _check_commits(self, first: int, last: int) -> None:
        missing = self._missing(first, last)
        if missing is not None:  # A listing beside a writer may have a commit and lack the one before. The next listing has it.
            self._commits.update(self._listed()[0])
            missing = self._missing(first, last)
        if missing is not None:
            raise TableError(
                f"{self.table}: version {last} cannot be read: the commit {missing} is not in _delta_log, and no checkpoint "
                "replaces it. Delta deletes old commits: choose a newer version; else restore the file"
            )

    def _missing(self, first: int, last: int) -> int | None:
        return next((number for number in range(first, last + 1) if number not in self._commits), None)

    def _apply(self, state: _State, first: int, last: int) -> None:
        """Applies commits. Memory holds the actions of a few of them."""
        waiting: deque[Future[list[Mapping[str, Any]]]] = deque()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for number in range(first, last + 1):
                waiting.append(pool.submit(self._commit, number))
                if len(waiting) == _AT_ONCE:
                    state.apply(waiting.popleft().result())
            while waiting:
                state.apply(waiting.popleft().result())

    def _commit(self, number: int) -> list[Mapping[str, Any]]:
        return self._lines(self._commits[number])

    def _lines(self, info: fs.FileInfo) -> list[Mapping[str, Any]]:
        try:
            with self._system.open_input_file(info.path) as file:
                actions = [json.loads(line) for line in file.read().splitlines() if line.strip()]
        except FileNotFoundError:
            raise TableError(f"{self.table}: {info.base_name} has been deleted from the log: try again") from None
        except (ValueError, OSError, RecursionError) as error:
            raise TableError(f"{self.table}: {info.base_name} in _delta_log is damaged: {error}: restore the file") from error
        if not all(isinstance(action, dict) for action in actions):
            raise TableError(f"{self.table}: {info.base_name} in _delta_log is damaged: a line is not an action")
        return actions

    # ---- checkpoints ----------------------------------------------------------------------------------------------

    def _load(self, state: _State, version: int, files: list[fs.FileInfo]) -> None:
        """Adds the files of a checkpoint. The actions of a checkpoint have no order; memory holds a batch of each part."""

        def load(info: fs.FileInfo) -> list[str]:
            """The sidecars that a part names."""
            sidecars = []
            for actions in self._actions(info):
                state.apply({kind: found for kind, found in action.items() if kind != "remove"} for action in actions)
                sidecars += [action["sidecar"]["path"] for action in actions if action.get("sidecar")]
            return sidecars

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            sidecars = [path for found in pool.map(load, files) for path in found]
            list(pool.map(load, [fs.FileInfo(self._sidecar(path), fs.FileType.File) for path in sidecars]))
        if state.metadata is None:
            raise TableError(f"{self.table}: the checkpoint of version {version} is damaged: it has no metadata")

    def _sidecar(self, path: str) -> str:
        """A sidecar as the file system names it. Its path is percent-encoded, and may be a name alone."""
        return self._storage.file(path if "/" in path else f"_delta_log/_sidecars/{path}")

    def _actions(self, info: fs.FileInfo) -> Iterator[list[Mapping[str, Any]]]:
        """The actions of a part of a checkpoint, in batches."""
        if info.path.endswith(".json"):
            yield self._lines(info)
            return
        try:
            with self._system.open_input_file(info.path) as source, opened(source) as file:
                yield from _parquet_actions(file)
        except FileNotFoundError:
            raise TableError(f"{self.table}: {info.base_name} of a checkpoint is not there: restore the file") from None
        except (DamagedFileError, pa.ArrowException, UnicodeError, OSError) as error:
            if not isinstance(found := error_of(error), DamagedFileError):
                raise found.within(f"{self.table}: {info.base_name} in _delta_log") from error
            raise TableError(f"{self.table}: {info.base_name} in _delta_log is damaged: {error}: restore the file") from error
        except UnsupportedFeatureError as error:
            raise error.within(f"{self.table}: {info.base_name} in _delta_log") from error

    # ---- times ----------------------------------------------------------------------------------------------------

    def _version_at(self, moment: int) -> int:
        """The newest version at a time, in milliseconds since 1970, as Delta finds it."""
        numbers = sorted(self._commits)
        if not numbers:
            raise TableError(f"{self.table} has no commits any more, so it has no times: choose a version")
        contiguous = [n for i, n in enumerate(numbers) if numbers[-1] - n == len(numbers) - 1 - i]
        first = next((n for n in contiguous if n == 0 or any(c <= n <= c + 1 for c in self._checkpoints)), None)
        if first is None:
            raise TableError(f"{self.table}: no version of the table can be rebuilt from the log: it is damaged")
        numbers = [n for n in contiguous if n >= first]
        since = self._timed_since(numbers[-1])
        times = self._modified([n for n in numbers if n < since])
        timed = [n for n in numbers if n >= since]
        before = bisect_right(timed, moment, key=self._in_commit)  # in-commit timestamps ascend
        found = timed[:before] or [number for number, at in times.items() if at <= moment]
        if not found:
            earliest = times[numbers[0]] if times else self._in_commit(numbers[0])
            raise TableError(f"{self.table} has no version at that time: the first is {numbers[0]}, of {_shown(earliest)}")
        if found[-1] == numbers[-1] and moment > (latest := self._in_commit(numbers[-1]) if timed else times[numbers[-1]]):
            raise TableError(
                f"{self.table} has no version as late as that: the newest is {numbers[-1]}, of {_shown(latest)}: leave out "
                "the timestamp"
            )
        return found[-1]

    def _timed_since(self, last: int) -> int:
        """The first version whose commit has an in-commit timestamp; one after the last if there is none."""
        properties = self._replayed(last).properties
        return int(properties.get(_ICT_SINCE[0], 0)) if properties.get(_ICT, "").lower() == "true" else last + 1

    def _modified(self, numbers: list[int]) -> dict[int, int]:
        """The times of commits as those of their files, in milliseconds, which must ascend."""
        times: dict[int, int] = {}
        latest = -(1 << 63)
        for number in numbers:
            times[number] = latest = max(int(self._commits[number].mtime_ns // 1_000_000), latest + 1)
        return times

    def _in_commit(self, number: int) -> int:
        """The in-commit timestamp of a version, in milliseconds."""
        for action in self._commit(number):
            at = (action.get("commitInfo") or {}).get("inCommitTimestamp")
            if at is not None:
                return int(at)
        raise TableError(f"{self.table}: commit {number} has no inCommitTimestamp, although the table has them: it is damaged")


def _parquet_actions(file: pq.ParquetFile) -> Iterator[list[Mapping[str, Any]]]:
    """The actions in a checkpoint file, in batches, without those that a reader does not use."""
    types = {field.name: field.type for field in file.schema_arrow}
    wanted = []
    for name in ("protocol", "metaData", "sidecar", "add"):
        if name not in types:
            continue
        inner = [part.name for part in types[name]]
        if name == "add":
            inner = [part for part in inner if part in _ADD and (part != "stats_parsed" or "stats" not in inner)]
        wanted += [f"{name}.{part}" for part in inner]
    for read in batches(file, 1 << 14, columns=wanted):
        batch = with_types(read, schema_without_views(read.schema))
        for name in batch.schema.names:
            column = _with_texts(batch.column(name))
            found = column.filter(column.is_valid()).to_pylist(maps_as_pydicts="lossy")
            yield [{name: action} for action in found if any(value is not None for value in action.values())]


def _with_texts(array: pa.Array) -> pa.Array:
    """A column whose dates and timestamps are texts, as in JSON: Python's end with the year 9999."""
    if pa.types.is_date(array.type) or pa.types.is_timestamp(array.type):
        return casts.cast(array, pa.string())
    if not pa.types.is_struct(array.type):
        return array
    children = [_with_texts(array.field(number)) for number in range(array.type.num_fields)]
    return pa.StructArray.from_arrays(children, [field.name for field in array.type], mask=array.is_null())


def _moment(timestamp: str | datetime, at: tzinfo) -> int:
    """A time in milliseconds since 1970. A text is cast as Spark casts it."""
    micros = None
    if isinstance(timestamp, str):
        micros = casts.timestamp_of(timestamp, at, local=False)
    elif isinstance(timestamp, datetime):
        moment = timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=at)
        micros = (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)
    if micros is None:
        raise TableError(f"timestamp={timestamp!r} is not a time: write it as '2026-11-01 12:00:00' or as a datetime")
    return micros // 1000


def _shown(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).isoformat(sep=" ", timespec="milliseconds")

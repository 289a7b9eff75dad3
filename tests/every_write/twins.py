"""The same statements in an enabled and in a plain session, on twin tables, and what the two leave behind.

Each session has a database of its own, so that the text of a statement is the same for both. What the log says is read from its
commits, in Python: a query of Delta takes a job. Names and identifiers that Delta draws at random are replaced by the order in
which they appear.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow.parquet as pq
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import VariantVal

from delta_variant import jvm
from tests.logs import commits

OURS, REMOVED = "parquet-cpp-arrow", "removed"
UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
EXPRESSION_ID = re.compile(r"#\d+L?")
RANDOM_PREFIX = re.compile("[0-9A-Za-z]{2,3}")
TIME = re.compile(r"=\d+-\d\d-\d\d[T ].*")
DOCUMENT = re.compile(r"doc\(([^()]*)\)")


class Twin(NamedTuple):
    """A session and its database, whose tables are in `directory`."""

    name: str
    session: SparkSession
    directory: Path


Step = str | Callable[[Twin], Any]
"""Statements of SQL, separated by `;`, or a function of a twin. It returns rows to compare, or None."""


@dataclass(frozen=True)
class Scenario:
    """Statements, and what differs from others about them.

    made_by_delta: run first, by a plain session on both twins.
    settings: of both sessions.
    tables: to compare; rows are compared of those that exist.
    delta: why Delta itself writes files of the enabled session, None if every file must be of this package.
    changes_from: the first version whose change feed can be read, if the schema has changed.
    same_files: whether both have the same rows in each file.
    """

    steps: tuple[Step, ...]
    made_by_delta: tuple[Step, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    tables: tuple[str, ...] = ("t",)
    delta: str | None = None
    changes_from: int = 0
    same_files: bool = True


def statements(steps: tuple[Step, ...]) -> Iterator[Step]:
    """Each statement alone."""
    for step in steps:
        if isinstance(step, str):
            texts = (re.sub(r"\s+", " ", text).strip() for text in step.split(";"))
            yield from (documents(text) for text in texts if text)
        else:
            yield step


def documents(query: str) -> str:
    """`doc(x)` stands for a VARIANT with x and a text in it."""
    return DOCUMENT.sub(r"parse_json(to_json(struct(\1 AS k, concat('text ', \1) AS s)))", query)


def run(twin: Twin, scenario: Scenario) -> list[tuple[str, Any]]:
    """Each statement with its outcome: rows, or an error."""
    with jvm.settings(twin.session, scenario.settings):
        return [(str(step), outcome(twin, step)) for step in statements(scenario.steps)]


def outcome(twin: Twin, step: Step) -> Any:
    """The rows of a statement without sizes and names of files; or class, condition, SQLSTATE and parameters of its error."""
    try:
        found = twin.session.sql(step.replace("{dir}", str(twin.directory))) if isinstance(step, str) else step(twin)
        rows = found.collect() if isinstance(found, DataFrame) else found or []
    except (PySparkException, Py4JJavaError) as error:
        return failure(error, twin)
    if rows and isinstance(rows[0], Row) and "metrics" in rows[0]:
        rows = [[row.metrics.numFilesAdded, row.metrics.numFilesRemoved, row.metrics.partitionsOptimized] for row in rows]
    if isinstance(step, str) and "CLONE" in step:
        rows = []
    return sorted((canonical(row) for row in rows), key=str)


def failure(error: Exception, twin: Twin) -> Any:
    """What users' code can tell of an error."""
    if isinstance(error, Py4JJavaError):
        chain, cause = [], error.java_exception
        while cause is not None:
            chain.append((cause.getClass().getName(), *codes(cause)))
            cause = cause.getCause()
        return type(error).__name__, chain
    assert isinstance(error, PySparkException)
    parameters = {key: masked(value.replace(twin.name, "twin")) for key, value in (error.getMessageParameters() or {}).items()}
    if error.getCondition() is None:
        return type(error).__name__, masked(str(error).replace(twin.name, "twin"))[:200]
    return type(error).__name__, error.getCondition(), error.getSqlState(), parameters


def codes(error: Any) -> list[str]:
    """Condition and SQLSTATE of an exception of the JVM that has them."""
    try:
        return [error.getCondition(), error.getSqlState()]
    except Py4JError:
        return []


def masked(text: str) -> str:
    """A text without what is drawn at random."""
    return re.sub(r"(?<=part-)\S+|(?<=stage )\S+|TID \d+|(?<=plan_id=)\d+", "…", EXPRESSION_ID.sub("#", UUID.sub("…", text)))


def canonical(value: Any) -> Any:
    """A value whose text says all of it: a VARIANT as its JSON, a row without its order, rows of maps in theirs."""
    if isinstance(value, VariantVal):
        return f"variant {value.toJson()}"
    if isinstance(value, Row):
        return [canonical(each) for each in value]
    if isinstance(value, list):
        return [canonical(each) for each in value]
    if isinstance(value, dict):
        return sorted(([canonical(key), canonical(each)] for key, each in value.items()), key=str)
    return repr(value)


def rows_of_both(plain: Twin, table: str, columns: str = "*") -> list[list[list[str]]]:
    """The rows of a table of both twins, read by the plain session."""
    return of_both(plain, f"SELECT {columns} FROM delta.`{{path}}/{table}`")


def changes_of_both(plain: Twin, table: str, version: int) -> list[list[list[str]]]:
    """The change feed of a table of both twins from a version on."""
    return of_both(plain, f"SELECT * EXCEPT (_commit_timestamp) FROM table_changes_by_path('{{path}}/{table}', {version})")


def of_both(plain: Twin, query: str) -> list[list[list[str]]]:
    """What a query gives of the database of each twin, as texts; asked as one query."""
    paths = [plain.directory.parents[1] / twin / plain.directory.name for twin in ("ours", "plain")]
    each = (f"SELECT {n} AS `the twin`, * FROM ({query.replace('{path}', str(path))})" for n, path in enumerate(paths))
    rows = plain.session.sql(" UNION ALL ".join(each)).collect()
    return [[[str(canonical(list(row[1:]))) for row in rows if row[0] == n]] for n in range(len(paths))]


class Log:
    """The log of a table in a form that is equal for both twins, if they are."""

    def __init__(self, path: Path) -> None:
        self.path, self.commits = path, commits(path)
        self.names: dict[str, str] = {}
        self.schema: dict[str, Any] = {}
        for metadata in (action["metaData"] for commit in self.commits for action in commit if "metaData" in action):
            for name in UUID.findall(metadata["schemaString"] + json.dumps(metadata["configuration"])):
                self.names.setdefault(name, f"uuid {len(self.names)}")

    def configuration(self) -> dict[str, str]:
        """The newest properties of the table."""
        return [action["metaData"] for commit in self.commits for action in commit if "metaData" in action][-1]["configuration"]

    def row_columns(self) -> str:
        """What to ask of the table: its columns, and row ids if it has them."""
        tracked = self.configuration().get("delta.enableRowTracking") == "true"
        return "*, _metadata.row_id AS `row id`, _metadata.row_commit_version AS `row version`" if tracked else "*"

    def feed_begins(self) -> int | None:
        """The first version that has a change feed."""
        for version, commit in enumerate(self.commits):
            for action in commit:
                if action.get("metaData", {}).get("configuration", {}).get("delta.enableChangeDataFeed") == "true":
                    return version
        return None

    def readable(self, *, same_files: bool) -> list[list[str]]:
        """Each commit as sorted texts of its actions."""
        return [sorted(self._actions(commit, same_files=same_files)) for commit in self.commits]

    def _actions(self, commit: list[dict[str, Any]], *, same_files: bool) -> Iterator[str]:
        for action in commit:
            ((kind, content),) = action.items()
            if kind == "metaData":
                self.schema = json.loads(content["schemaString"])
            if not same_files and kind in ("add", "cdc", "remove"):
                continue
            told = _TOLD.get(kind, lambda _, content: content)(self, content)
            yield self._text(kind, told)

    def _text(self, kind: str, told: Any) -> str:
        named = UUID.sub(lambda found: self.names.get(found[0], "uuid"), json.dumps(told, ensure_ascii=False))
        text = json.dumps(json.loads(named), ensure_ascii=False, sort_keys=True)
        return f"{kind} {masked(text).replace(self.path.parents[1].name, 'twin')}"

    def _commit_info(self, info: dict[str, Any]) -> Any:
        dropped = ("timestamp", "inCommitTimestamp", "txnId", "engineInfo")
        metrics = {
            key: value for key, value in info.get("operationMetrics", {}).items() if not re.search("Bytes|Time|Size", key)
        }
        return {key: value for key, value in info.items() if key not in dropped} | {"operationMetrics": metrics}

    def _metadata(self, metadata: dict[str, Any]) -> Any:
        return {key: value for key, value in metadata.items() if key not in ("id", "createdTime", "schemaString", "name")} | {
            "schema": self.schema
        }

    def _add(self, add: dict[str, Any]) -> Any:
        tags = {key: value for key, value in (add.get("tags") or {}).items() if not key.startswith("delta_variant.")}
        stats = json.loads(add.get("stats") or "{}")
        for kind, dropped in {"minValues": "variant", "maxValues": "variant", "nullCount": "void"}.items():
            if kind in stats:
                stats[kind] = ordinary(stats[kind], self.schema, dropped)
        kept = ("partitionValues", "dataChange", "baseRowId", "defaultRowCommitVersion", "clusteringProvider")
        return {key: add.get(key) for key in kept} | {
            "directory": directory(add),
            "stats": stats,
            "tags": {key: None if "TIME" in key else value for key, value in tags.items()},
            "deleted": (add.get("deletionVector") or {}).get("cardinality"),
        }

    def _remove(self, remove: dict[str, Any]) -> Any:
        kept = ("partitionValues", "dataChange", "baseRowId", "defaultRowCommitVersion", "extendedFileMetadata")
        return {key: remove.get(key) for key in kept} | {"deleted": (remove.get("deletionVector") or {}).get("cardinality")}

    def _cdc(self, cdc: dict[str, Any]) -> Any:
        return {"partitionValues": cdc["partitionValues"], "dataChange": cdc["dataChange"], "directory": directory(cdc)}

    def _txn(self, txn: dict[str, Any]) -> Any:
        return {key: value for key, value in txn.items() if key != "lastUpdated"}

    def writers(self, first: int) -> Iterator[tuple[str, str]]:
        """Each file that versions from `first` on brought, and who wrote it."""
        seen = {action["add"]["path"] for commit in self.commits[:first] for action in commit if "add" in action}
        for commit in self.commits[first:]:
            for action in commit:
                path = (action.get("add") or action.get("cdc") or {}).get("path")
                if path and path not in seen:
                    seen.add(path)
                    file = self.path / unquote(path)
                    by = pq.ParquetFile(file).metadata.created_by if file.exists() else REMOVED
                    yield path, by.split(" version ")[0]


_TOLD: dict[str, Callable[[Log, dict[str, Any]], Any]] = {
    "commitInfo": Log._commit_info,
    "metaData": Log._metadata,
    "add": Log._add,
    "remove": Log._remove,
    "cdc": Log._cdc,
    "txn": Log._txn,
}


def directory(action: dict[str, Any]) -> str:
    """The directory of a file; `??` for a random one. In Delta's, times are in the time zone of the session."""
    parts = unquote(action["path"]).split("/")[:-1]
    return "/".join("??" if RANDOM_PREFIX.fullmatch(part) else TIME.sub("=…", part) for part in parts)


def ordinary(stats: Any, schema: Any, dropped: str) -> Any:
    """Statistics by column without columns of one type, and times in UTC: Delta writes them in the time zone of the session."""
    types = {each["metadata"].get("delta.columnMapping.physicalName", each["name"]): each["type"] for each in schema["fields"]}
    return {
        name: ordinary(value, types[name], dropped) if isinstance(value, dict) else in_utc(value, types.get(name))
        for name, value in stats.items()
        if types.get(name) != dropped
    }


def in_utc(value: Any, kind: str | None) -> Any:
    if kind != "timestamp" or not isinstance(value, str):
        return value
    try:
        return str(datetime.fromisoformat(value.replace("Z", "+00:00")).astimezone(timezone.utc))
    except (ValueError, OverflowError):  # not a year that Python has
        return value

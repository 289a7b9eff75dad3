"""A transaction of Delta's that puts new files in the place of others with the same rows (`scala/Rewrite.scala`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import DataFrame

from delta_variant import jvm
from delta_variant.features import TableFeatures
from delta_variant.transaction import Table, Transaction


@dataclass(frozen=True)
class Operation:
    """How DESCRIBE HISTORY shows a rewriting."""

    reorganizes: bool
    """Whether as REORG, else as OPTIMIZE."""
    where: str | None = None
    cluster_by: tuple[str, ...] = ()


class Rewriting(Transaction):
    """One of Delta's transactions that changes the files of a table and none of its rows."""

    _steps = "Rewrite"

    def __init__(self, table: Table, operation: Operation, tags: Mapping[str, str]) -> None:
        """tags: of all new files."""
        super().__init__(table)
        self._operation, self._tags = operation, tags
        self._row_ids: tuple[str, ...] = ()

    @cached_property
    def features(self) -> TableFeatures:
        """The table features of the snapshot. With row tracking, the schema has the columns that keep the rows' ids."""
        found = super().features
        kept = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in self._row_ids]
        return replace(found, schema={**found.schema, "fields": [*found.schema["fields"], *kept]})

    def add_actions(self, where: str | None) -> DataFrame:
        """A row for each file of the partitions that `where` selects: the columns of its Add action, with parsed statistics."""
        with jvm.delta_errors(f"reading the log of {self._table.name}"):
            return DataFrame(self._write.files(where), self.spark)

    def open(self, paths: Sequence[str]) -> DataFrame:
        """The rows of these files, or of those that the table still has."""
        with jvm.delta_errors(f"reading {self._table.name}"):
            rows = DataFrame(self._write.open(list(paths)), self.spark)
        columns = len(self.features.schema["fields"])
        self._row_ids = tuple(rows.columns[columns:])
        self.__dict__.pop("features")
        return rows

    @property
    def opened(self) -> tuple[int, int]:
        """The number and the size in bytes of the files that `open` found."""
        return int(self._write.opened()), int(self._write.openedBytes())

    def _commit(self, is_new_name: bool) -> None:  # noqa: ARG002
        chosen = self._operation
        self._write.replace(chosen.reorganizes, chosen.where, list(chosen.cluster_by), dict(self._tags))

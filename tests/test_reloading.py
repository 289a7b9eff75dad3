"""Files that have changed since `ingest` or `convert` took them: reported, refused, or loaded anew, each row once."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from delta import DeltaTable

import delta_variant as dv
from delta_variant import ingestion, parquet
from delta_variant.errors import ConflictError, DeltaVariantWarning, InvalidSchemaError, TableError, UnsupportedFeatureError
from delta_variant.transaction import Transaction
from tests.logs import commits, last, live, newest
from tests.test_convert import rows as variants
from tests.test_writer import read

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

_clock = itertools.count(1_700_000_000)


class Json:
    """Files of JSON lines and `ingest`."""

    load = staticmethod(dv.ingest)
    suffix = ".jsonl"

    @staticmethod
    def put(path: Path, numbers, time: float | None = None) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps({"id": n}) + "\n" if n >= 0 else f'{{"id": {n}\n' for n in numbers))
        time = next(_clock) if time is None else time
        os.utime(path, (time, time))
        return path

    @staticmethod
    def found(spark, table) -> list[int]:
        return sorted(row[0] for row in read(spark, table).selectExpr("v:id::int").collect())


class Parquet:
    """Files of Parquet and `convert`."""

    load = staticmethod(dv.convert)
    suffix = ".parquet"

    @staticmethod
    def put(path: Path, numbers, time: float | None = None) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        first = min(numbers)
        assert sorted(numbers) == list(range(first, first + len(numbers)))
        parquet.write_table(variants(first, first + len(numbers)), path)
        time = next(_clock) if time is None else time
        os.utime(path, (time, time))
        return path

    @staticmethod
    def found(spark, table) -> list[int]:
        return sorted(row.n for row in read(spark, table).select("n").collect())


KINDS = pytest.mark.parametrize("kind", [Json, Parquet], ids=["ingest", "convert"])


@pytest.mark.parametrize("path_column", [None, "origin"])
@KINDS
def test_reload(spark, tmp_path, kind, path_column):
    """Of three files of a commit, one grew, one was put right and one stayed: each has its newest rows, once (W7)."""
    options = {} if path_column is None else {"path_column": path_column}
    files = [tmp_path / "in" / f"it's {name}{kind.suffix}" for name in "abc"]
    for number, file in enumerate(files):
        kind.put(file, range(number * 100, number * 100 + 3))
    kind.load(spark, tmp_path / "in", tmp_path / "t", **options)
    kind.put(files[0], range(8))
    kind.put(files[1], range(150, 152), time=1_600_000_000.25)  # older than what the table has
    kind.put(tmp_path / "in" / f"new{kind.suffix}", range(500, 504))
    with pytest.warns(DeltaVariantWarning, match=r"2 files have changed since .*/t took them: .*a\.\w+, .*b\.\w+\. .*'reload'"):
        done = kind.load(spark, tmp_path / "in", tmp_path / "t", **options)
    assert (done.changed, done.files, done.skipped, done.rows) == (2, 1, 3, 4)
    before = newest(tmp_path / "t")
    with pytest.raises(TableError, match=r"2 files have changed since .*a\.\w+, .*b\.\w+; changed='reload' replaces"):
        kind.load(spark, tmp_path / "in", tmp_path / "t", changed="error", **options)
    assert newest(tmp_path / "t") == before
    done = kind.load(spark, tmp_path / "in", tmp_path / "t", changed="reload", **options)
    again = 2 if path_column else 3
    assert (done.changed, done.files, done.skipped, done.commits) == (2, again, 4 - again, 1)
    rows = [*range(8), *range(150, 152), *range(200, 203), *range(500, 504)]
    assert kind.found(spark, tmp_path / "t") == rows
    if path_column:
        origins = Counter(Path(row[0]).name for row in read(spark, tmp_path / "t").select(path_column).collect())
        assert sorted(origins.values()) == [2, 3, 4, 8]
    for changed in ("reload", "error", "skip"):
        done = kind.load(spark, tmp_path / "in", tmp_path / "t", changed=changed, **options)
        assert (done.version, done.changed, done.skipped) == (None, 0, 4)
    assert newest(tmp_path / "t") == before + 1


def test_arguments(spark, tmp_path):
    """Choices that there are not, or that leave nothing to choose, are refused; so is a column that files have already."""
    file = Parquet.put(tmp_path / "a.parquet", range(3))
    for load in (dv.ingest, dv.convert):
        with pytest.raises(UnsupportedFeatureError, match="changed='again' is not one of skip, error, reload"):
            load(spark, file, tmp_path / "t", changed="again")
        for changed in ("reload", "error"):
            with pytest.raises(UnsupportedFeatureError, match="force=True"):
                load(spark, file, tmp_path / "t", changed=changed, force=True)
    with pytest.raises(InvalidSchemaError, match="a column N already"):
        dv.convert(spark, file, tmp_path / "t", path_column="N")
    assert not (tmp_path / "t").exists()

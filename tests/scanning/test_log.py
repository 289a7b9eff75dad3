"""The log read without Spark: versions, times, checkpoints and what is damaged. Oracles: Spark, and the protocol."""

from __future__ import annotations

import itertools
import json
import os
import random
import tempfile
import uuid
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import delta_variant as dv
from delta_variant import errors
from delta_variant.scanning import log
from delta_variant.scanning.log import Log
from delta_variant.scanning.query import _storage
from tests.by_hand import by_hand, commit


def test_missing_table(tmp_path):
    """A directory without a log is an error that says so."""
    with pytest.raises(errors.TableError, match="is not a Delta table"):
        dv.scan(tmp_path / "nothing")


def test_damaged_log(numbers):
    """A commit that is no JSON, and one that is missing, are errors that name it."""
    commit(numbers, 2, [])
    with pytest.raises(errors.TableError, match="commit 1 is not in _delta_log"):
        dv.scan(numbers)
    (numbers / "_delta_log" / f"{1:020}.json").write_text('{"add": ')
    with pytest.raises(errors.TableError, match=rf"{1:020}\.json in _delta_log is damaged"):
        dv.scan(numbers)


def test_a_listing_that_lacks_a_commit(numbers):
    """A directory that is listed beside a writer can lack a commit and have the next one: the commit is read all the same."""
    commit(numbers, 2, [])
    storage = _storage(numbers, {})
    log = Log(storage, storage.open())
    commit(numbers, 1, [{"remove": {"path": "0.parquet", "dataChange": True}}])
    snapshot = log.snapshot()
    assert (snapshot.version, [file.path for file in snapshot.files]) == (2, ["1.parquet"])


def test_any_damage_of_the_log(numbers):
    """Whatever bytes of a commit are changed, the table is read or there is an error of this package."""
    rng, path = random.Random(1), numbers / "_delta_log" / f"{0:020}.json"
    good, raised = path.read_bytes(), 0
    for _ in range(300):
        data = bytearray(good)
        for _ in range(rng.choice([1, 5, 30])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])
        try:
            dv.scan(numbers, where="n > 3").read_all()
        except errors.DeltaVariantError:
            raised += 1
    assert raised > 100


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        ("add", {"path": "0.parquet", "size": "many"}),
        ("add", {"size": 1}),
        ("add", 5),
        ("metaData", {"schemaString": "{}"}),
        ("remove", {}),
    ],
)
def test_actions_without_their_fields(numbers, name, damaged):
    """An action that lacks a field, or has one of another type, is an error that says that the log is damaged."""
    commit(numbers, 1, [{name: damaged}])
    with pytest.raises(errors.TableError, match="damaged"):
        dv.scan(numbers)


def test_a_schema_of_too_many_levels(tmp_path):
    """Lists in lists that Python's stack cannot take are an error of the log, as structs are."""
    kind: Any = "long"
    for _ in range(300):
        kind = {"type": "array", "elementType": kind, "containsNull": True}
    rows = pa.table({"x": pa.array([1])})
    assert dv.scan(by_hand(tmp_path / "t", {"x": kind, "n": "long"}, []), ["n"]).read_all().num_rows == 0
    root = by_hand(tmp_path / "u", {"x": "long"}, [(rows, {})])
    path = root / "_delta_log" / f"{0:020}.json"
    deep = '{"type": "array", "containsNull": true, "elementType": ' * 3000 + '"long"' + "}" * 3000
    path.write_text(path.read_text().replace('\\"long\\"', json.dumps(deep)[1:-1]))
    with pytest.raises(errors.TableError, match=r"schema in the log is damaged .*RecursionError"):
        dv.scan(root)


@pytest.mark.parametrize("info", [5, "x", [1], *({"inCommitTimestamp": time} for time in ("x", 10**30, -(10**18), [1], 2**62))])
def test_damaged_times_of_versions(tmp_path, info):
    """A commit whose time is damaged is an error that says so, for a version by its time."""
    root = by_hand(tmp_path / "t", {"n": "long"}, [], configuration={"delta.enableInCommitTimestamps": "true"})
    path = root / "_delta_log" / f"{0:020}.json"
    path.write_text(json.dumps({"commitInfo": info}) + "\n" + path.read_text())
    with pytest.raises(errors.TableError, match="the times in _delta_log are damaged"):
        dv.scan(root, timestamp="2026-01-01")


def test_removes_with_another_form_of_a_path(tmp_path):
    """A Remove ends the Add of a file whose absolute path it has in another form, as Delta writes it."""
    rows = [(pa.table({"n": pa.array([n], pa.int64())}), {"path": f"{tmp_path}/t/{n}.parquet"}) for n in range(3)]
    root = by_hand(tmp_path / "t", {"n": "long"}, rows)
    commit(root, 1, [{"remove": {"path": f"file:{slashes}{root}/{n}.parquet"}} for n, slashes in enumerate(("", "//"))])
    assert dv.scan(root).read_all()["n"].to_pylist() == [2]


@pytest.mark.parametrize("damage", ["newest commit", "missing commit", "newest checkpoint"])
def test_which_checkpoints_are_loaded(tmp_path, monkeypatch, damage):
    """An older checkpoint is loaded in place of a damaged one, and none if a commit that all of them need is damaged."""
    root = by_hand(tmp_path / "t", {"n": "long"}, [])
    folder, loaded = root / "_delta_log", []
    actions = (folder / f"{0:020}.json").read_text()
    checkpoints = [folder / f"{version:020}.checkpoint.{uuid.uuid4()}.json" for version in (10, 20)]
    for version in range(1, 60):
        commit(root, version, [{"commitInfo": {}}])
    for checkpoint in checkpoints:
        checkpoint.write_text(actions)
    load = Log._load
    monkeypatch.setattr(Log, "_load", lambda self, state, *start: [loaded.append(start[0]), load(self, state, *start)])
    if damage == "newest checkpoint":
        checkpoints[-1].write_text("{")
        assert dv.scan(root).read_all().num_rows == 0
        assert loaded == [20, 10]
    else:
        (folder / f"{59:020}.json").write_text("{")
        if damage == "missing commit":
            (folder / f"{40:020}.json").unlink()
        message = "the commit 40" if damage == "missing commit" else f"{59:020}.json in _delta_log is damaged"
        with pytest.raises(errors.TableError, match=message):
            dv.scan(root)
        assert loaded == ([20] if damage == "newest commit" else [])


def test_a_few_commits_are_in_memory(tmp_path, monkeypatch):
    """Commits are read ahead of those that are applied, but only a few of them."""
    root = by_hand(tmp_path / "t", {"n": "long"}, [])
    for version in range(1, 100):
        commit(root, version, [{"commitInfo": {}}])
    read, apply, begun, ahead = Log._commit, log._State.apply, [], []

    def counted(self, number):
        begun.append(number)
        return read(self, number)

    def compared(self, actions):
        ahead.append(len(begun) - len(ahead))
        apply(self, actions)

    monkeypatch.setattr(Log, "_commit", counted)
    monkeypatch.setattr(log._State, "apply", compared)
    assert dv.scan(root).read_all().num_rows == 0
    assert len(ahead) == 100
    assert max(ahead) <= log._AT_ONCE


@pytest.mark.parametrize("feature", ["catalogManaged", "futureFeature"])
def test_unknown_features(tmp_path, feature):
    """A reader feature that scan does not know is refused by its name."""
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["variantType", feature],
        "writerFeatures": [feature],
    }
    root = by_hand(tmp_path / "t", {"n": "long"}, [], protocol=protocol)
    with pytest.raises(errors.UnsupportedFeatureError, match=feature):
        dv.scan(root)


def test_times_of_versions(numbers):
    """A timestamp is exact to the millisecond, and without a zone it is in the zone of the session, as in Spark."""
    at = datetime(2024, 1, 1, 12, 0, 0, 123000, tzinfo=timezone.utc)
    for milliseconds in range(123, 1000, 73):
        nanoseconds = (int(at.timestamp()) * 1000 + milliseconds) * 1_000_000
        os.utime(numbers / "_delta_log" / f"{0:020}.json", ns=(nanoseconds, nanoseconds))
        moment = at.replace(microsecond=milliseconds * 1000)
        local = f"2024-01-01 07:00:00.{milliseconds}"
        for timestamp in (moment, moment.replace(tzinfo=None, hour=7), local, f"2024-01-01 12:00:00.{milliseconds}Z"):
            assert dv.scan(numbers, timestamp=timestamp, timezone="America/New_York").read_all().num_rows == 10, timestamp
    with pytest.raises(errors.TableError, match="no version at that time"):
        dv.scan(numbers, timestamp=f"{local[:-1]}0", timezone="America/New_York")


@pytest.mark.parametrize("text", [pa.string(), pa.string_view()], ids=str)
def test_statistics_of_a_checkpoint_that_are_no_texts(tmp_path, text):
    """Bounds beyond Python's last year, in a checkpoint that has statistics as columns only, rule out the right files. The
    Arrow schema of the checkpoint may have views."""
    days = [3_789_391, -756_052, 0]
    tables = [(pa.table({"d": pa.array([day], pa.int32()).view(pa.date32())}), {}) for day in days]
    root = by_hand(tmp_path / "t", {"d": "date"}, tables)
    actions = [json.loads(line) for line in (root / "_delta_log" / f"{0:020}.json").read_text().splitlines()]
    bounds, maps = pa.struct([("d", pa.date32())]), pa.map_(text, text)
    stats = pa.struct([("numRecords", pa.int64()), ("minValues", bounds), ("maxValues", bounds)])
    schema = pa.schema(
        [
            ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])),
            ("metaData", pa.struct([("id", text), ("schemaString", text), ("configuration", maps)])),
            ("add", pa.struct([("path", text), ("size", pa.int64()), ("stats_parsed", stats)])),
        ]
    )
    for action, day in zip(actions[2:], days, strict=True):
        one = pa.scalar(day, pa.int32()).cast(pa.date32())
        action["add"]["stats_parsed"] = {"numRecords": 1, "minValues": {"d": one}, "maxValues": {"d": one}}
    columns = [pa.array([action.get(field.name) for action in actions], field.type) for field in schema]
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), root / "_delta_log" / f"{0:020}.checkpoint.parquet")
    (root / "_delta_log" / f"{0:020}.json").unlink()
    (root / "2.parquet").unlink()  # is not opened
    found = [dv.scan(root, where=where).read_all().num_rows for where in ("d > date'9999-12-31'", "d < date'0001-01-01'")]
    assert found == [1, 1]


@pytest.mark.spark
@pytest.mark.slow
def test_in_commit_timestamps(spark, tmp_path):
    """A table with in-commit timestamps is read by these, whatever the times of its files are."""
    path = tmp_path / "t"
    spark.range(1).write.format("delta").save(str(path))
    spark.sql(f"alter table delta.`{path}` set tblproperties ('delta.enableInCommitTimestamps' = 'true')")
    spark.range(2).write.format("delta").mode("append").save(str(path))
    log = Log(_storage(path, {}), _storage(path, {}).open())
    times = [row["timestamp"] for row in spark.sql(f"describe history delta.`{path}`").orderBy("version").collect()]
    for number in (1, 2):
        os.utime(path / "_delta_log" / f"{number:020}.json", (1, 1))
    assert [log.snapshot(timestamp=at).version for at in times[1:]] == [1, 2]


TIMES = st.lists(st.integers(1, 60), min_size=1, max_size=25)


@given(modified=TIMES, seconds=TIMES, data=st.data())
def test_versions_by_time(modified, seconds, data):
    """The version at a time is the last that is not later: by the times of files, which must ascend, and since the table has
    in-commit timestamps by these, of which few are read."""
    since, ascending, ticks = len(modified), [], 1_000 * int(datetime(2024, 1, 1, tzinfo=timezone.utc).timestamp())
    for at in modified:
        ascending.append(max([ticks + 1_000 * at, *(known + 1 for known in ascending[-1:])]))
    stamped = [ascending[-1] + 1_000 * at for at in itertools.accumulate(seconds)]
    with tempfile.TemporaryDirectory() as folder:
        configuration = {
            "delta.enableInCommitTimestamps": "true",
            "delta.inCommitTimestampEnablementVersion": str(since),
            "delta.inCommitTimestampEnablementTimestamp": str(stamped[0]),
        }
        root = by_hand(Path(folder, "t"), {"n": "long"}, [], configuration=configuration)
        for version, at in enumerate(modified):
            if version:
                commit(root, version, [{"commitInfo": {}}])
            os.utime(root / "_delta_log" / f"{version:020}.json", (ticks // 1_000 + at, ticks // 1_000 + at))
        for version, at in enumerate(stamped, since):
            commit(root, version, [{"commitInfo": {"inCommitTimestamp": at}}])
        read = []

        class Counted(Log):
            def _in_commit(self, number):
                read.append(number)
                return super()._in_commit(number)

        times = ascending + stamped
        at = data.draw(st.sampled_from(times)) + data.draw(st.sampled_from([-1, 0, 1]))
        storage = _storage(root, {})
        moment = datetime.fromtimestamp(at / 1_000, timezone.utc)
        if times[0] <= at <= times[-1]:
            found = Counted(storage, storage.open()).snapshot(timestamp=moment)
            assert found.version == max(version for version, known in enumerate(times) if known <= at)
        else:
            with pytest.raises(errors.TableError, match=r"no version a[ts]"):
                Counted(storage, storage.open()).snapshot(timestamp=moment)
        assert len(read) <= len(stamped).bit_length() + 1


def test_names_of_sidecars_are_percent_encoded(tmp_path):
    """A sidecar is found by its name and by its path, both percent-encoded."""
    rows = [(pa.table({"n": pa.array([n], pa.int64())}), {}) for n in range(2)]
    root = by_hand(tmp_path / "a b", {"n": "long"}, rows)
    newest = root / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    (root / "_delta_log" / "_sidecars").mkdir()
    adds = [action["add"] for action in actions if "add" in action]
    names = [f"{number} %.parquet" for number in range(len(adds))]
    for name, add in zip(names, adds, strict=True):
        one = pa.table({"add": pa.array([{"path": add["path"], "size": add["size"]}])})
        pq.write_table(one, root / "_delta_log" / "_sidecars" / name)
    paths = [quote(names[0]), f"file://{quote(str(root / '_delta_log' / '_sidecars' / names[1]))}"]
    others = [action for action in actions if "add" not in action]
    others += [{"sidecar": {"path": path, "sizeInBytes": 1, "modificationTime": 0}} for path in paths]
    checkpoint = root / "_delta_log" / f"{0:020}.checkpoint.{uuid.uuid4()}.json"
    checkpoint.write_text("\n".join(map(json.dumps, others)))
    newest.unlink()
    assert sorted(dv.scan(root).read_all()["n"].to_pylist()) == [0, 1]

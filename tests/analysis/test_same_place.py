"""Tables that follow each other in one directory, with files of the same names and sizes: none is taken for another."""

from __future__ import annotations

import json
import os
import random
import shutil
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import delta_variant as dv
from delta_variant.membership import sidecars
from tests.logs import last, live, newest
from tests.strategies import column
from tests.support import forget, length, scans

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

LETTERS, ROWS = "abcd", 400
NAMES = [f"{name}.parquet" for name in ("one", "two", "three", "four")]
TIME = 1_700_000_000_000
"""The modification time of every file whose time is not what a test is about."""
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "v", "type": "variant", "nullable": True, "metadata": {}},
    ],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """By letter, the bytes of a file whose keys begin with it. All have the same size."""
    folder, found = tmp_path_factory.mktemp("data"), {}
    for letter in LETTERS:
        for salt in range(100):  # checksums of pages take four or five bytes in a footer
            rows = [{"k": f"{letter}{row:05d}", "salt": salt} for row in range(ROWS)]
            table = pa.table({"id": range(ROWS), "v": column(rows)})
            dv.parquet.write_table(table, folder / letter, compression="none")
            found[letter] = (folder / letter).read_bytes()
            if len(found[letter]) == len(found[LETTERS[0]]):
                break
    assert len({len(data) for data in found.values()}) == 1
    return found


def put(path, letters, data):
    """Writes a file for each letter in place, all at the same time of the file system."""
    path.mkdir(exist_ok=True)
    for name, letter in zip(NAMES, letters, strict=False):
        (path / name).write_bytes(data[letter])
        os.utime(path / name, (TIME / 1000, TIME / 1000))


def log(path, times, *, version=0, ident=None, **more):
    """Writes a commit of a table of these files, as another writer would. times: the modification times, by file."""
    features = ["variantType", "variantShredding"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    metadata = {"id": ident or str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}}, "partitionColumns": []}
    metadata |= {"schemaString": json.dumps(SCHEMA), "configuration": {}}
    actions = [{"protocol": protocol}, {"metaData": metadata}] if version == 0 else []
    for name, time in times.items():
        size = (path / name).stat().st_size
        add = {"path": name, "partitionValues": {}, "size": size, "modificationTime": time, "dataChange": True, **more}
        actions.append({"add": add})
    (path / "_delta_log").mkdir(exist_ok=True)
    (path / "_delta_log" / f"{version:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


def key(letter, row=7):
    return f"{letter}{row:05d}"


def lookups(on, path, letters):
    """Looks a row of each letter up, by SQL and by `scan`: it is in every file of the letter. Returns how many SQL opens."""
    query = "SELECT '{0}' AS letter, id FROM delta.`{1}` WHERE v:k::string = '{2}'"
    union = on.sql(" UNION ALL ".join(query.format(letter, path, key(letter)) for letter in LETTERS))
    counts = {letter: scan.files_after_bounds for letter, scan in zip(LETTERS, scans(union), strict=True)}
    found = sorted(row.letter for row in union.collect())
    assert found == sorted(letters)
    scanned = [letter for letter in LETTERS for _ in dv.scan(path, ["id"], f"v:k::string = '{key(letter)}'").read_all()["id"]]
    assert sorted(scanned) == found
    return counts


def analyzed(spark, path):
    return dv.VariantTable.forPath(spark, path).analyze(bloom=["v:k"], budget=0.5).indexed


class History:
    """A directory in which tables come and go. `table` is the id of the one that is there."""

    def __init__(self, path, data, rng):
        self.path, self.data, self.rng, self.table = path, data, rng, ""
        self.left = {}  # the tables that may come back: id -> letters and logs
        self.letters = ""
        self.new()

    def times(self):
        return {name: TIME + self.rng.choice([0, 0, 1000]) for name in NAMES[: len(self.letters)]}

    def new(self):
        """Deletes the log, writes some files anew in place, and makes a table of them."""
        self._leave()
        self.letters = "".join(self.rng.choices(LETTERS, k=self.rng.choice([3, 4])))
        self.table = str(uuid.uuid4())
        put(self.path, self.letters, self.data)
        log(self.path, self.times(), ident=self.table)

    def back(self):
        """Brings the log and the files of an earlier table back."""
        if set(self.left) - {self.table}:
            earlier = self.rng.choice(sorted(set(self.left) - {self.table}))
            self._leave()
            self.table, (self.letters, kept) = earlier, self.left[earlier]
            put(self.path, self.letters, self.data)
            shutil.copytree(kept, self.path / "_delta_log")

    def rewrite(self):
        """Another writer replaces a file by one of the same name and size."""
        place = self.rng.randrange(len(self.letters))
        letter = self.rng.choice([letter for letter in LETTERS if letter != self.letters[place]])
        self.letters = self.letters[:place] + letter + self.letters[place + 1 :]
        put(self.path, self.letters, self.data)
        version = newest(self.path) + 1
        log(self.path, {NAMES[place]: TIME + 5000 + version}, version=version)

    def _leave(self):
        if self.table:
            kept = self.path.parent / f"log of {self.table}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.move(self.path / "_delta_log", kept)
            self.left[self.table] = self.letters, kept


@pytest.mark.parametrize("seed", range(length("DELTA_VARIANT_HISTORIES", 1, 60)))
def test_histories(spark, on, data, tmp_path, seed):
    """Whatever becomes of a directory, look-ups have the rows that are there, and an analysis makes them short again (I1)."""
    rng = random.Random(seed)
    history = History(tmp_path / "t", data, rng)
    for step in [
        "index",
        "new",
        "look",
        "index",
        "back",
        "look",
        *rng.choices(["new", "back", "rewrite", "index", "look"], k=3),
    ]:
        if step in ("new", "back", "rewrite"):
            getattr(history, step)()
            forget(spark)
        else:
            if step == "index":
                assert not analyzed(spark, history.path).failed
            counts = lookups(on, history.path, history.letters)
            if step == "index":
                assert all(count <= history.letters.count(letter) + 1 for letter, count in counts.items()), counts
    rng.shuffle(steps := ["rewrite", "new"])
    for step in steps:
        getattr(history, step)()
        forget(spark)
        lookups(on, history.path, history.letters)


def test_time_of_a_file(spark, on, data, tmp_path):
    """A filter counts only for an Add action with the modification time that it was made for (I1)."""
    put(tmp_path, "abcd", data)
    log(tmp_path, dict.fromkeys(NAMES, TIME))
    analyzed(spark, tmp_path)
    assert max(lookups(on, tmp_path, "abcd").values()) <= 2
    put(tmp_path, "aacd", data)
    log(tmp_path, {NAMES[1]: TIME + 1}, version=newest(tmp_path) + 1)
    counts = lookups(on, tmp_path, "aacd")
    assert (counts["a"], counts["b"]) == (2, 1)
    assert analyzed(spark, tmp_path).files == 1
    assert lookups(on, tmp_path, "aacd")["b"] == 0


def test_converted_again(spark, on, data, tmp_path):
    """CONVERT TO DELTA after the log was deleted makes another table, whose files are indexed anew (I1)."""
    for letters in ("abc", "bbd"):
        shutil.rmtree(tmp_path / "_delta_log", ignore_errors=True)
        put(tmp_path, letters, data)
        forget(spark)
        spark.sql(f"CONVERT TO DELTA parquet.`{tmp_path}` NO STATISTICS")
        lookups(on, tmp_path, letters)
        done = analyzed(spark, tmp_path)
        assert (done.files, done.filters) == (3, 3)
        assert max(lookups(on, tmp_path, letters).values()) <= letters.count("b") + 1


def test_version_1(spark, on, data, tmp_path):
    """An index of version 1 counts for nothing; `explain` says so, and an analysis builds another one and deletes it (I1)."""
    put(tmp_path, "abcd", data)
    log(tmp_path, dict.fromkeys(NAMES, TIME))
    analyzed(spark, tmp_path)
    folder = tmp_path / sidecars.directory(("v",), ("k",))
    old = sorted(folder.glob("*.parquet"))
    for file in old:
        found = pq.read_table(file)
        metadata = {**found.schema.metadata, b"delta_variant.index": b"1"}
        del metadata[b"delta_variant.table"]
        pq.write_table(found.drop_columns(["time"]).replace_schema_metadata(metadata), file)
        os.utime(file, (0, 0))
    assert set(lookups(on, tmp_path, "abcd").values()) == {4}
    [scan] = dv.explain(on.sql(f"SELECT id FROM delta.`{tmp_path}` WHERE v:k::string = 'x'")).scans
    assert any("of another table or of an older version" in reason for reason in scan.reasons), scan.reasons
    assert analyzed(spark, tmp_path).filters == 4
    assert max(lookups(on, tmp_path, "abcd").values()) <= 2
    assert not set(old) & set(folder.glob("*.parquet"))


def test_names_that_come_back(spark, on, tmp_path_factory):
    """Tables made again under a name, by Spark and by this package, and replaced ones, have their own rows (I1)."""
    properties = "'delta_variant.bloom.v' = 'k', 'delta_variant.indexBudget' = '0.5'"

    def rows(letter):
        return spark.range(0, ROWS, 1, 2).selectExpr(
            "id", f"parse_json(to_json(named_struct('k', concat('{letter}', lpad(id, 5, '0'))))) AS v"
        )

    def place():
        return Path(spark.sql("DESCRIBE DETAIL again").first().location.removeprefix("file:"))

    def ident():
        return last(place(), "metaData")["id"]

    def found(letters):
        counts = lookups(on, place(), letters)
        assert all(count <= letters.count(letter) + 1 for letter, count in counts.items()), counts

    dv.write(rows("a"), "again")
    spark.sql(f"ALTER TABLE again SET TBLPROPERTIES ({properties})")
    dv.write(rows("b"), "again", mode="overwrite")
    found("b")
    first = ident()
    dv.write(rows("c"), "again", mode="overwrite", overwrite_schema=True)
    assert ident() == first
    found("c")
    spark.sql("RESTORE TABLE again TO VERSION AS OF 2")
    found("b")
    kept = place().parent / "kept index"
    shutil.copytree(place() / sidecars.DIRECTORY, kept)
    spark.sql("DROP TABLE again")
    rows("d").write.format("delta").option("delta.enableVariantShredding", "true").saveAsTable("again")
    shutil.copytree(kept, place() / sidecars.DIRECTORY)
    assert ident() != first
    lookups(on, place(), "d")
    dv.VariantTable.forName(spark, "again").analyze(bloom=["v:k"], budget=0.5)
    found("d")
    spark.sql(f"CREATE OR REPLACE TABLE again USING delta TBLPROPERTIES ({properties}) AS SELECT * FROM delta.`{place()}`")
    dv.VariantTable.forName(spark, "again").analyze()
    found("d")
    spark.sql("DROP TABLE again")


# ---- what the driver keeps of tables ---------------------------------------------------------------------------------------


def padded(data, size):
    """The same Parquet file with so many bytes: readers find all but the end from the beginning."""
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return data[:footer] + bytes(size - len(data)) + data[footer:]


def planted(path, files, **more):
    """Puts a table with these files in place of another one. All its tables have the same names, sizes and times."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    for name, content in files.items():
        (path / name).write_bytes(content)
        os.utime(path / name, (TIME / 1000, TIME / 1000))
    log(path, dict.fromkeys(files, TIME), **more)


def test_footers_of_another_table(spark, on, tmp_path):
    """Proofs from a footer are not taken for those of a file of the same name, size and time in the next table (T2)."""
    proven, mixed = [{"k": row} for row in range(ROWS)], [{"k": row if row % 2 else f"t{row}"} for row in range(ROWS)]
    contents = []
    for number, documents in enumerate((proven, mixed)):
        file = tmp_path / f"{number}.parquet"
        table = pa.table({"id": range(ROWS), "v": column(documents)})
        dv.parquet.write_table(table, file, shred={"v": "k bigint"}, compression="none")
        contents.append(file.read_bytes())
    size = max(map(len, contents))
    path, setting = tmp_path / "t", "spark.delta_variant.footerBytes"
    on.conf.set(setting, "0")
    try:
        for content, wanted in zip(contents, (0, ROWS // 2), strict=True):
            planted(path, {"one.parquet": padded(content, size)})
            query = f"SELECT id FROM delta.`{path}` WHERE v:k::string LIKE 't%'"
            assert on.sql(query).count() == wanted
            [scan] = dv.explain(on.sql(query)).scans
            assert scan.typed_files == {"v:k": 1}  # by its own footer: only the second file has a residual
    finally:
        on.conf.unset(setting)


def test_bounds_of_another_table(spark, on, tmp_path):
    """Bounds in the log of one table are not taken for those of the next one, at the same version."""
    made = []
    for number in range(2):
        source = tmp_path / str(number)
        shifted = spark.range(0, ROWS, 1, 2).selectExpr(
            "id", f"parse_json(concat('{{\"k\":', id + {number} * {ROWS}, '}}')) AS v"
        )
        dv.write(shifted, source)
        adds = sorted(live(source).values(), key=lambda add: add["stats"])
        made.append([((source / add["path"]).read_bytes(), {name: add[name] for name in ("stats", "tags")}) for add in adds])
    sizes = [max(len(files[place][0]) for files in made) for place in range(2)]
    path = tmp_path / "t"
    for turn in (0, 1, 0):
        files = {NAMES[place]: padded(content, sizes[place]) for place, (content, _) in enumerate(made[turn])}
        planted(path, files)
        lines = [json.loads(line) for line in (path / "_delta_log" / f"{0:020}.json").read_text().splitlines()]
        for action, (_, said) in zip(lines[2:], made[turn], strict=True):
            action["add"] |= said
        (path / "_delta_log" / f"{0:020}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
        for asked in range(2):
            query = on.sql(f"SELECT id FROM delta.`{path}` WHERE v:k::bigint = {asked * ROWS + 5}")
            [scan] = scans(query)
            assert scan.files_after_bounds == int(asked == turn)
            assert [row.id for row in query.collect()] == [5] * (asked == turn)

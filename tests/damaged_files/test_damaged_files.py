"""Damaged files, logs and arrays: an error of this package or the right rows, and never the end of the process.

DAMAGED_INPUTS sets the length of a run, DAMAGED_SEED repeats one, DAMAGED_PROCESSES says in how many processes:
DAMAGED_INPUTS=20000 python -m pytest -s tests/damaged_files/test_damaged_files.py
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import selectors
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import delta_variant as dv
from delta_variant.errors import DamagedFileError, DeltaVariantError, InvalidLayoutError, UnsupportedFeatureError
from delta_variant.kernels import footers as kernel
from delta_variant.parquet import footer
from tests.damaged_files import damage, tables, thrift_trees
from tests.support import length

ROOT = Path(__file__).parents[2]
INPUTS = length("DAMAGED_INPUTS", 60, 20_000)
SEED = int(os.environ.get("DAMAGED_SEED", str(random.randrange(2**32))))
PROCESSES = length("DAMAGED_PROCESSES", 1, 2)
BATCH = 500
PATIENCE = 600  # seconds without a sign of life, after which a process is taken to hang


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The table that is damaged."""
    root = tmp_path_factory.mktemp("damaged") / "table"
    tables.build(root)
    return root


def run(base, start, stop):
    """Runs some inputs in processes of their own. Returns their counts by kind and by result, and what went wrong."""
    kinds: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    while start < stop:
        command = [
            sys.executable,
            "-m",
            "tests.damaged_files.inputs",
            str(base),
            str(SEED),
            str(start),
            str(min(start + BATCH, stop)),
        ]
        with (base.parent / f"{start}.err").open("w+") as errors:
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT)
            number, done = start - 1, False
            for line in lines(child):
                said = json.loads(line)
                if isinstance(said, int):
                    number = said
                elif "wrong" in said:
                    wrong.append(f"input {number}: {said['wrong']}")
                else:
                    kinds, counts, done = kinds + Counter(said["kinds"]), counts + Counter(said["counts"]), True
            code = child.wait()
            if not done:
                errors.seek(0)
                wrong.append(f"input {number}: the process ended with {code}: {errors.read()[-2000:]}")
        start = min(start + BATCH, stop) if done else max(start, number + 1)
        assert len(wrong) < 100, wrong[0]
    return kinds, counts, wrong


def lines(child):
    """The lines that a process writes. It is ended if it writes none for long."""
    os.set_blocking(child.stdout.fileno(), False)
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while selector.select(PATIENCE):
            data = child.stdout.read()
            if not data:
                return
            *whole, rest = (rest + data).split(b"\n")
            yield from whole
    child.kill()


@pytest.mark.slow
def test_damaged_files_logs_and_arrays(base):
    """Whatever is damaged, `scan`, `read_table`, `inspect`, `analyze`, `convert` and the codec give right rows or our errors.

    `damaged_files` says what is right. The process neither dies nor hangs, and its memory does not grow.
    """
    share = -(-INPUTS // PROCESSES)
    spans = [(start, min(start + share, INPUTS)) for start in range(0, INPUTS, share)]
    with ThreadPoolExecutor(len(spans)) as pool:
        results = list(pool.map(lambda span: run(base, *span), spans))
    kinds, counts = (sum((result[number] for result in results), Counter()) for number in range(2))
    wrong = [text for result in results for text in result[2]]
    print(f"DAMAGED_SEED={SEED}: {kinds.total()} inputs, {len(wrong)} wrong")
    print(*(f"{count:8} {name}" for name, count in [*kinds.most_common(), *sorted(counts.items())]), sep="\n")
    assert not wrong, "\n".join([f"DAMAGED_SEED={SEED}", *wrong[:5]])
    assert kinds.total() == INPUTS
    assert counts["read: right rows"]
    assert counts["read: DamagedFileError"]


# ---- footers ---------------------------------------------------------------------------------------------------------


def edited(data: bytes, edit) -> bytes:
    """A file whose footer, as a tree, is edited."""
    before, old = damage.split(data)
    tree, _ = thrift_trees.decode(old)
    edit(tree)
    return damage.joined(before, thrift_trees.encode(tree))


def at(tree: list[Any], *path: int) -> Any:
    """The field, or the value, that ids of fields and numbers of elements lead to, in turns."""
    for step, number in enumerate(path):
        tree = tree[2][1][number] if step % 2 else next(one for one in tree if one[0] == number)
    return tree


def put(*path: int, value: Any):
    """An edit that sets a value."""

    def edit(tree: list[Any]) -> None:
        at(tree, *path)[2] = value

    return edit


def inside(number: int, edit):
    """An edit of the metadata of a column chunk of the first row group."""
    return lambda tree: edit(at(at(tree, 4, 0, 1, number), 3)[2])


N, S = 0, 1  # the columns of the file: int64 and string
ELEMENT = 2  # the field with the schema elements, whose first is the root


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A file of pyarrow with two columns and two row groups, whose footer has all that pyarrow writes."""
    path = tmp_path_factory.mktemp("footers") / "f.parquet"
    table = pa.table({"n": pa.array(range(10), pa.int64()), "s": [f"text {n}" for n in range(10)]})
    pq.write_table(table, path, row_group_size=5, write_page_index=True)
    return path


@pytest.mark.parametrize(
    ("code", "edit"),
    [
        (kernel.BAD_THRIFT, lambda tree: tree.append([30, 13, 0])),
        (kernel.BAD_THRIFT, lambda tree: tree.append(tree[0])),
        (kernel.BAD_THRIFT, lambda tree: tree.pop(3)),
        (kernel.BAD_THRIFT, inside(N, lambda meta: meta.pop(0))),
        (kernel.BAD_TREE, lambda tree: put(5, value=3)(at(tree, ELEMENT, 0))),
        (kernel.BAD_TREE, lambda tree: put(5, value=1)(at(tree, ELEMENT, 0))),
        (kernel.BAD_TREE, lambda tree: put(3, value=7)(at(tree, ELEMENT, 1))),
        (kernel.BAD_NAME, lambda tree: put(4, value=b"\xff")(at(tree, ELEMENT, 1))),
        (kernel.BAD_TYPE, lambda tree: put(1, value=8)(at(tree, ELEMENT, 1))),
        (kernel.BAD_COUNT, lambda tree: at(at(tree, 4, 0), 1)[2][1].pop()),
        (kernel.NO_METADATA, lambda tree: at(tree, 4, 0, 1, 0).pop(1)),
        (kernel.ENCRYPTED, lambda tree: at(tree, 4, 0, 1, 0).append([8, thrift_trees.STRUCT, []])),
        (kernel.ELSEWHERE, lambda tree: at(tree, 4, 0, 1, 0).insert(0, [1, thrift_trees.BINARY, b"x"])),
        (kernel.BAD_PATH, lambda tree: put(4, value=b"o")(at(tree, ELEMENT, 1))),
        (kernel.BAD_PATH, inside(N, put(3, value=[thrift_trees.BINARY, [b"n", b"o"]]))),
        (kernel.BAD_KIND, inside(N, put(1, value=1))),
        (kernel.BAD_CODEC, inside(N, put(4, value=8))),
        (kernel.BAD_VALUES, inside(N, put(5, value=4))),
        (kernel.BAD_PLACE, inside(N, put(9, value=1 << 40))),
        (kernel.BAD_PLACE, inside(N, put(7, value=-1))),
        (kernel.BAD_PLACE, inside(N, put(7, value=1 << 62))),
        (kernel.BAD_NULLS, inside(N, lambda meta: put(3, value=6)(at(meta, 12)[2]))),
        (kernel.BAD_NULLS, inside(N, lambda meta: put(3, value=-1)(at(meta, 12)[2]))),
        (kernel.BAD_LEVELS, inside(N, lambda meta: at(meta, 16)[2].insert(0, [1, thrift_trees.I64, 5]))),
        (kernel.BAD_LEVELS, inside(S, lambda meta: put(3, value=[thrift_trees.I64, [0, 0, 5]])(at(meta, 16)[2]))),
        (kernel.BAD_ROWS, put(3, value=11)),
        (kernel.SHARED, lambda tree: [inside(N, put(number, value=chunk(tree, S, number)))(tree) for number in (9, 11)]),
    ],
)  # fmt: skip
def test_footers_that_contradict_themselves(written, tmp_path, code, edit):
    """What pyarrow would die of, or read other rows with, is an error that says what is wrong with the footer (F7)."""
    path = tmp_path / "f.parquet"
    path.write_bytes(edited(written.read_bytes(), edit))
    error = UnsupportedFeatureError if code in kernel.UNSUPPORTED else DamagedFileError
    for read in (dv.parquet.read_table, dv.parquet.inspect):
        with pytest.raises(error, match=re.escape(kernel.FAULTS[code])):
            read(path)


@pytest.mark.parametrize("place", ["chunk", "encodings"])
def test_types_that_hide_others(written, tmp_path, place):
    """A reader of Thrift that expects another type than the file declares would go on within a text: that is an error (F7)."""

    def edit(tree: list[Any]) -> None:
        fields = at(tree, 4, 0, 1, 0)
        number, first = (0, [1, thrift_trees.I8]) if place == "chunk" else (1, [2, thrift_trees.LIST])
        if place == "encodings":
            fields = at(fields, 3)[2]
        rest = thrift_trees.encode(fields[number:], 1 if place == "chunk" else 2)
        text = thrift_trees.Raw(bytes([len(rest) & 0x7F | 0x80, len(rest) >> 7]) + rest)
        if place == "chunk":
            fields.insert(0, [*first, text])
        else:
            fields[1][2] = thrift_trees.Raw(bytes([0x10 | thrift_trees.BINARY]) + text)

    (tmp_path / "f").write_bytes(edited(written.read_bytes(), edit))
    for read in (dv.parquet.read_table, dv.parquet.inspect):
        with pytest.raises(DamagedFileError, match=re.escape(kernel.FAULTS[kernel.BAD_THRIFT])):
            read(tmp_path / "f")


WITHOUT_LISTS = {(5,), (7,), (4, 1, 3, 13), (4, 1, 3, 8), (4, 4)}
"""Structs with fields that readers pass over alike if they have another type."""


def test_types_of_known_fields(written):
    """A field of another type than `parquet.thrift` has, or a list of other elements, is an error, wherever it is (F7)."""
    before, whole = damage.split(written.read_bytes())
    tree, _ = thrift_trees.decode(whole)
    count, every = 0, thrift_trees.nodes(tree)
    elements = {id(holder[place][1]) for holder, place, kind, _ in every if kind == thrift_trees.LIST}
    for holder, _, kind, path in every:
        if path[:-1] in WITHOUT_LISTS or id(holder) in elements:
            continue
        others = [
            [*holder[:1], other, thrift_trees.Raw(thrift_trees.encode([[1, kind, holder[2]]])[1:-1])]
            for other in range(1, 13)
            if other != kind and {other, kind} != {thrift_trees.TRUE, thrift_trees.FALSE}
        ]
        if kind == thrift_trees.LIST and holder[2][1]:
            header = thrift_trees.encode([[1, kind, holder[2]]])[1:-1]
            others += [
                [*holder[:2], thrift_trees.Raw(bytes([header[0] & 0xF0 | other]) + header[1:])]
                for other in range(1, 13)
                if other != holder[2][0]
            ]
        kept = holder[:]
        for other in others:
            holder[:] = other
            with pytest.raises(DamagedFileError):
                footer.checked(thrift_trees.encode(tree), len(before))
            count += 1
        holder[:] = kept
    assert count > 1000
    assert footer.checked(thrift_trees.encode(tree), len(before)) == whole


def chunk(tree: list[Any], column: int, field: int) -> Any:
    """A number in the metadata of a column chunk of the first row group."""
    return at(at(at(tree, 4, 0, 1, column), 3)[2], field)[2]


def test_deep_schemas(written, tmp_path):
    """A schema that is nested more deeply than pyarrow 26 allows is an error; older ones recurse until the stack ends."""
    group = [[3, thrift_trees.I32, 1], [4, thrift_trees.BINARY, b"g"], [5, thrift_trees.I32, 1]]

    def edit(tree: list[Any]) -> None:
        leaf = at(tree, ELEMENT, 1)
        at(tree, ELEMENT)[2] = [thrift_trees.STRUCT, [group[1:], *[group] * 100_000, leaf]]

    (tmp_path / "f").write_bytes(edited(written.read_bytes(), edit))
    with pytest.raises(DamagedFileError, match="nested too deeply"):
        dv.parquet.read_table(tmp_path / "f")


def test_truncated_footers(written):
    """No beginning of a footer passes."""
    before, whole = damage.split(written.read_bytes())
    assert footer.checked(whole, len(before)) == whole
    for size in range(len(whole)):
        with pytest.raises(DamagedFileError):
            footer.checked(whole[:size], len(before))


def test_bounds_that_other_writers_cut(written, tmp_path):
    """Bounds that are shorter than a value, of which pyarrow dies, are left out, and the rows are read."""
    cut = inside(N, lambda meta: put(6, value=b"\0\0\0")(at(meta, 12)[2]))
    (tmp_path / "f").write_bytes(edited(written.read_bytes(), cut))
    assert dv.parquet.read_table(tmp_path / "f") == pq.read_table(written)
    kept = footer.of(io.BytesIO((tmp_path / "f").read_bytes()))
    metadata = pq.read_metadata(pa.BufferReader(footer.MAGIC + footer.joined(kept)))
    bounds = [metadata.row_group(group).column(N).statistics.has_min_max for group in range(2)]
    assert (bounds, metadata.row_group(0).column(N).statistics.null_count) == ([False, True], 0)


@pytest.mark.parametrize("number", [24, 40, 9000])
def test_ids_far_from_others(written, number):
    """Bounds are left out of statistics with a field that this package does not know, and the field stays."""
    before, whole = damage.split(written.read_bytes())
    tree, _ = thrift_trees.decode(whole)

    def edit(meta: list[Any]) -> None:
        put(6, value=b"")(at(meta, 12)[2])
        at(meta, 12)[2].append([number, thrift_trees.I64, 7])

    inside(N, edit)(tree)
    kept, _ = thrift_trees.decode(footer.checked(thrift_trees.encode(tree), len(before)))
    found = at(at(at(kept, 4, 0, 1, N), 3)[2], 12)[2]
    assert [field[0] for field in found] == [3, number]


# ---- what is no damage -----------------------------------------------------------------------------------------------


@pytest.fixture
def table_of(tmp_path):
    """Makes a Delta table of one file with a column s of strings."""

    def make(data: bytes) -> Path:
        (tmp_path / "t" / "_delta_log").mkdir(parents=True)
        (tmp_path / "t" / "a.parquet").write_bytes(data)
        fields = [{"name": "s", "type": "string", "nullable": True, "metadata": {}}]
        actions = [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
                          "configuration": {}, "schemaString": json.dumps({"type": "struct", "fields": fields})}},
            {"add": {"path": "a.parquet", "partitionValues": {}, "size": len(data), "modificationTime": 1, "dataChange": True}},
        ]  # fmt: skip
        (tmp_path / "t" / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
        return tmp_path / "t"

    return make


def readers(table: Path) -> list[Any]:
    """Ways to read the file of a table."""
    return [lambda: dv.scan(table).read_all(), lambda: dv.parquet.read_table(table / "a.parquet")]


def strings(*texts: bytes) -> pa.Array:
    """A column of strings with any bytes."""
    return pa.Array.from_buffers(pa.string(), len(texts), pa.array(texts, pa.binary()).buffers())


def test_strings_that_are_not_utf8(table_of, tmp_path):
    """A string that is not UTF-8, which Spark writes, is no damage: the error says how to read the file."""
    pq.write_table(pa.table({"s": strings(b"good", b"\xff\xfe")}), tmp_path / "f", write_statistics=False)
    for read in readers(table_of((tmp_path / "f").read_bytes())):
        with pytest.raises(
            UnsupportedFeatureError, match=r"column s has a string that is not valid UTF-8.*select other"
        ) as found:
            read()
        assert "restore" not in str(found.value)
        assert "a.parquet" in str(found.value)


def test_encrypted_footers(table_of):
    """An encrypted footer is no damage."""
    for read in readers(table_of(b"PARE" + bytes(50) + (20).to_bytes(4, "little") + b"PARE")):
        with pytest.raises(UnsupportedFeatureError, match="the footer is encrypted") as found:
            read()
        assert "restore" not in str(found.value)


def test_codecs_that_pyarrow_lacks(table_of, tmp_path):
    """A codec that pyarrow lacks is no damage."""
    pq.write_table(pa.table({"s": ["text"] * 9}), tmp_path / "f", compression="none")
    lzo = edited((tmp_path / "f").read_bytes(), inside(0, put(4, value=3)))
    for read in readers(table_of(lzo)):
        with pytest.raises(UnsupportedFeatureError, match="pyarrow cannot read") as found:
            read()
        assert "restore" not in str(found.value)


def decimal(column: int, precision: int, scale: int = 2):
    """An edit that makes a column a decimal: by the converted type alone, which every version of pyarrow reads."""

    def edit(tree: list[Any]) -> None:
        element = at(tree, ELEMENT)[2][1][column]
        element[:] = [field for field in element if field[0] not in (6, 7, 8, 10)]
        element += [[number, thrift_trees.I32, value] for number, value in ((6, 5), (7, scale), (8, precision))]

    return edit


@pytest.mark.parametrize(("kind", "value"), [(pa.binary(20), bytes(19) + b"\5"), (pa.binary(), bytes(16) + b"\5")])
def test_decimals_that_pyarrow_lacks(table_of, tmp_path, kind, value):
    """A decimal in more than 16 bytes, which Parquet allows for every precision, is no damage; one in no bytes is."""
    pq.write_table(pa.table({"s": pa.array([value], kind)}), tmp_path / "f", compression="none", use_dictionary=False)
    wide = edited((tmp_path / "f").read_bytes(), decimal(1, 38))
    for read in readers(table_of(wide)):
        with pytest.raises(UnsupportedFeatureError, match="pyarrow cannot read") as found:
            read()
        assert "a.parquet" in str(found.value)
        assert "restore" not in str(found.value)
    pq.write_table(pa.table({"s": pa.array([b""])}), tmp_path / "f")
    (tmp_path / "f").write_bytes(edited((tmp_path / "f").read_bytes(), decimal(1, 38)))
    with pytest.raises(DamagedFileError):
        dv.parquet.read_table(tmp_path / "f")


@pytest.mark.parametrize(("kind", "digits"), [(pa.int32(), 9), (pa.int64(), 18)])
def test_decimals_with_more_digits_than_their_column(tmp_path, kind, digits):
    """In a VARIANT, a decimal whose column has no room for its digits is an invalid layout; with the most digits it is read."""
    dv.parquet.write_table(pa.table({"v": dv.arrow.VariantArray.from_pylist([5])}), tmp_path / "f", shred={"v": kind})
    data = (tmp_path / "f").read_bytes()
    for precision in (digits, digits + 1):
        path = tmp_path / f"{precision}.parquet"
        path.write_bytes(edited(data, decimal(4, precision)))
        if precision == digits:
            assert dv.binary.decode(**dv.parquet.read_table(path)["v"][0].as_py()) == Decimal("0.05")
            continue
        for read in (dv.parquet.read_table, dv.parquet.inspect):
            with pytest.raises(InvalidLayoutError, match=f"{path.name}: .*room for {digits} digits.*{precision},2"):
                read(path)


def test_files_of_other_writers(base, tmp_path):
    """Footers of pyarrow, DuckDB and Polars pass, with nested columns, empty tables and row groups, and every type."""
    polars = pytest.importorskip("polars")
    duckdb = pytest.importorskip("duckdb")
    table = tables.rows_from(0)
    polars.from_arrow(table.drop_columns(["m"])).write_parquet(tmp_path / "polars.parquet", row_group_size=7)
    duckdb.sql(f"copy (select *, [{{a: [1, 2]}}] as l from range(5000)) to '{tmp_path}/duckdb.parquet' (row_group_size 2048)")
    for name, version in (("a", "1.0"), ("b", "2.6")):
        pq.write_table(table, tmp_path / f"{name}.parquet", version=version, row_group_size=7, write_page_index=True)
        pq.write_table(table.slice(0, 0), tmp_path / f"{name}0.parquet", version=version)
    pq.write_table(table.select([]), tmp_path / "none.parquet")
    files = [*tmp_path.glob("*.parquet"), *base.glob("*.parquet"), *base.glob("_delta_log/**/*.parquet")]
    for path in files:
        kept = footer.of(io.BytesIO(path.read_bytes()))
        assert kept == damage.split(path.read_bytes())[1]
        assert dv.parquet.read_table(path).num_rows == pq.read_metadata(path).num_rows
    assert len(files) > 10


def test_pages_have_checksums(base):
    """A changed byte in the pages of a file of this package is found, since its pages have checksums (F7)."""
    path = base / "0.parquet"
    data, rng = path.read_bytes(), random.Random(1)
    parts = damage.chunks(damage.split(data)[1])
    copy = base.parent / "copy.parquet"
    for part in rng.sample(parts, 20):
        changed = bytearray(data)
        changed[min(part[9], part.get(11, part[9])) + part[7] - 1] ^= 1  # the last byte of its last page
        copy.write_bytes(changed)
        with pytest.raises(DamagedFileError, match="integrity"):
            dv.parquet.read_table(copy)


def test_one_place_opens_files():
    """pyarrow gets files to read in one module only, behind the check."""
    found = {
        path.name
        for path in Path(dv.__file__).parent.rglob("*.py")
        if re.search(
            r"\b(pq|parquet)\.(ParquetFile\(|read_metadata|read_schema|ParquetDataset)|pq\.read_table"
            r"|from pyarrow\.(parquet|dataset) import|\bds\.(dataset|parquet_dataset|FileSystemDataset|ParquetFileFormat)\b",
            path.read_text(),
        )
    }
    assert found == {"opening.py"}


# ---- with Spark ------------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.slow
def test_damaged_files_of_tables(spark, tmp_path):
    """`analyze` and `inspect` name damaged files and treat all others; `convert` raises an error with the file.

    No worker dies.
    """
    rows = spark.range(0, length("DAMAGED_FILES", 24, 200) * 4, 1, 1).selectExpr(
        "id AS n", "parse_json(concat('{\"id\": ', id, ', \"k\": \"k', id % 7, '\"}')) AS v"
    )
    dv.write(rows, tmp_path / "t", max_rows_per_file=4, shred={"v": "id bigint"})
    table, rng = dv.VariantTable.forPath(spark, tmp_path / "t"), random.Random(SEED)
    files = sorted(path for path in (tmp_path / "t").rglob("*.parquet") if "_delta_log" not in path.parts)
    good = [rng.random() < 0.3 for _ in files]
    for path, is_good in zip(files, good, strict=True):
        if not is_good:
            path.write_bytes(rng.choice([damage.of_footer, damage.of_page, damage.of_bytes])(rng, path.read_bytes()))
    healthy = {path.name for path, is_good in zip(files, good, strict=True) if is_good}
    found = table.inspect().toArrow().to_pylist()
    assert {Path(row["file"]).name for row in found} == {path.name for path in files}
    assert not [row for row in found if row["error"] and Path(row["file"]).name in healthy]
    done = table.analyze(paths=["v:k"])
    assert not {Path(name).name for name in done.failed} & healthy
    assert done.files + len(done.failed) >= len(healthy)
    for path in rng.sample(files, length("DAMAGED_CONVERSIONS", 2, 30)):
        target = tmp_path / f"converted-{path.stem[:8]}"
        try:
            dv.convert(spark, path, target)
        except DeltaVariantError as error:
            assert path.name in str(error)

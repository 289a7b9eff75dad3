"""The command, run as a user runs it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from delta_variant.cli import main; main()"]


def run(*arguments, **environment):
    import os

    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


SERIES = """
import json, sys
from delta_variant.cli import main
for arguments in json.loads(sys.argv[1]):
    try:
        main(arguments)
    except SystemExit as end:
        for stream in (sys.stdout, sys.stderr):
            print(f"EXIT {end.code or 0}", file=stream, flush=True)
"""


def run_all(*commands):
    """The exit code, the output and the errors of each command. All of them run in one process, and so in one JVM."""
    done = subprocess.run([sys.executable, "-c", SERIES, json.dumps(commands)], capture_output=True, text=True, check=False)
    outputs, errors = (re.split(r"EXIT (\d+)\n", text) for text in (done.stdout, done.stderr))
    assert len(outputs) == 2 * len(commands) + 1, done.stderr
    return list(zip(map(int, outputs[1::2]), outputs[::2], errors[::2], strict=False))


@pytest.mark.spark
@pytest.mark.slow
def test_demo(tmp_path):
    """The demo runs with the property on and off, prints the answers, opens fewer shredded files, and leaves a table."""
    done = run("demo", "--path", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "20 files" in done.stdout
    assert "shredded: event" in done.stdout
    assert "plain, as the property demands" in done.stdout
    assert "22km NNE of Hualian, Taiwan" in done.stdout
    opened = [line.split() for line in done.stdout.splitlines() if ": opened" in line]
    assert [(words[0], words[4]) for words in opened] == [("shredded:", "20"), ("plain:", "20")] * 3
    assert all(int(words[2]) < 10 if words[0] == "shredded:" else words[2] == "20" for words in opened)
    assert (Path(tmp_path) / "earthquakes" / "_delta_log").is_dir()
    assert "Traceback" not in done.stderr
    assert "WARN" not in done.stderr


def test_no_java(tmp_path):
    """Without Java the demo ends with one sentence that says what to install."""
    done = run("demo", JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "install Java 17" in line


def test_an_older_java(tmp_path):
    """With an older Java the demo ends with one sentence that names its version and says what to install."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    done = run("demo", JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "is version 11" in line
    assert "install Java 17" in line


@pytest.mark.spark
@pytest.mark.slow
def test_ingest(tmp_path):
    """Files become a table, malformed lines another one; a second run loads nothing; errors are one line."""
    (tmp_path / "day=2026-11-01").mkdir()
    (tmp_path / "day=2026-11-01" / "a.json").write_text('{"id": 1}\n{"id":\n')
    arguments = ["ingest", str(tmp_path / "day=*"), str(tmp_path / "t"), "--folder", "day=date", "--constant", "source=test"]
    more = ["--bad-records", str(tmp_path / "bad"), "--partition-by", "day", "--conf", "spark.sql.session.timeZone=UTC"]
    failed, done, again = run_all(arguments, arguments + more, [*arguments, *more, "--json"])
    code, _, errors = failed
    assert code == 1
    assert "a.json, line 2: not a JSON document" in errors.splitlines()[-1]
    assert "Traceback" not in errors
    code, output, errors = done
    assert code == 0, errors
    assert f"{tmp_path / 't'} is at version 0: 1 rows of 1 files" in output
    assert "1 malformed documents are in" in output
    assert json.loads(again[1])["skipped"] == 1
    assert (tmp_path / "t" / "day=2026-11-01").is_dir()


def test_ingest_arguments():
    """Options that are no pairs are refused with a sentence, and the help shows an example."""
    refused = run("ingest", "a", "b", "--folder", "day")
    assert refused.returncode == 2
    assert "day is not name=value" in refused.stderr
    assert "Example: delta-variant ingest" in run("ingest", "--help").stdout


def test_inspect_a_file(tmp_path):
    """A file is inspected without Spark; the table says for each path what is in its typed column, and JSON is for machines."""
    import pyarrow as pa

    import delta_variant as dv

    file = str(tmp_path / "e.parquet")
    table = pa.table({"v": dv.arrow.VariantArray.from_pylist([{"id": 1}, {"id": "x"}])})
    dv.parquet.write_table(table, file, shred={"v": "id bigint"})
    done = run("inspect", file, JAVA_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("column: v, layout: final, is_annotated: True, schema: id bigint, rows: 2")
    [line] = [line.split() for line in done.stdout.splitlines() if "$['id']" in line]
    assert line[:4] == ["$['id']", "bigint", "1", "1"]
    found = json.loads(run("inspect", file, "--json").stdout)
    assert [path["path"] for path in found["paths"]] == ["$", "$['id']"]


@pytest.mark.spark
@pytest.mark.slow
def test_a_table(tmp_path):
    """A table is analyzed, inspected and optimized: its one file gets bounds, which are listed, and is in order."""
    table = str(tmp_path / "t")
    make = (
        "import sys; from pyspark.sql import SparkSession; import delta_variant as dv; "
        "s = dv.configure(SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')).getOrCreate(); "
        "rows = s.range(5).selectExpr('parse_json(to_json(struct(id))) v').coalesce(1); "
        "rows.write.format('delta').option('delta.enableVariantShredding', 'true').save(sys.argv[1])"
    )
    subprocess.run([sys.executable, "-c", make, table], check=True, capture_output=True)
    done = run("analyze", table, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"] == 1
    [found] = [json.loads(line) for line in run("inspect", table, "--json").stdout.splitlines()]
    [line] = [path for path in found["paths"] if path["path"] == "$['id']"]
    assert (line["min"], line["max"], line["typed"], line["proven"]) == ("0", "4", 5, True)
    assert run("analyze", table, "--path", "v:a[0]").returncode == 1
    done = json.loads(run("optimize", table, "--cluster-by", "v:id", "--json").stdout)
    assert (done["commits"], done["files_kept"]) == (0, 1)


@pytest.mark.spark
@pytest.mark.slow
def test_convert(tmp_path):
    """Parquet files become a table, a second run converts nothing, a column of texts becomes VARIANT; errors are one line."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import delta_variant as dv

    (tmp_path / "in" / "day=2026-11-01").mkdir(parents=True)
    table = pa.table({"v": dv.arrow.VariantArray.from_pylist([{"id": 1}]), "j": ['{"a": 2}']})
    dv.parquet.write_table(table, tmp_path / "in" / "day=2026-11-01" / "a.parquet")
    pq.write_table(pa.table({"n": [1]}), tmp_path / "b.parquet")
    arguments = ["convert", str(tmp_path / "in"), str(tmp_path / "t")]
    texts = ["convert", str(tmp_path / "t"), "--parse-json", "w=j", "--json"]
    done, again, parsed, failed = run_all(
        arguments, [*arguments, "--json"], texts, ["convert", str(tmp_path / "b.parquet"), str(tmp_path / "u")]
    )
    code, output, errors = done
    assert code == 0, errors
    assert f"{tmp_path / 't'} is at version 0: 1 rows of 1 files" in output
    assert (tmp_path / "t" / "day=2026-11-01").is_dir()
    assert json.loads(again[1])["skipped"] == 1
    assert (json.loads(parsed[1])["version"], json.loads(parsed[1])["rows"]) == (1, 1)
    assert failed[0] == 1
    assert "none of the columns n is a VARIANT" in failed[2].splitlines()[-1]


def test_convert_arguments():
    """A source and texts exclude each other, and the help shows examples."""
    for arguments in (["t"], ["a", "t", "--parse-json", "v=j"], ["t", "--parse-json", "v=j", "--force"]):
        refused = run("convert", *arguments)
        assert refused.returncode == 2
        assert "--parse-json" in refused.stderr
    assert "Example: delta-variant convert" in run("convert", "--help").stdout

"""The command, run as a user runs it."""

import json
import os
import re
import signal
import subprocess
import sys
import warnings

import pytest
from pyspark.sql import SparkSession

from delta_variant import jvm
from delta_variant.cli import main
from delta_variant.cli.demo import called
from delta_variant.cli.load import _show_loaded
from delta_variant.cli.picture import picture
from delta_variant.cli.servers import EXTENSIONS
from delta_variant.ingestion import Ingested
from delta_variant.version import __version__
from tests.support import INTERPRETED

COMMAND = [sys.executable, "-c", "from delta_variant.cli import main; main(prog_name='delta-variant')"]


def run(*arguments, **environment):
    import os

    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


@pytest.fixture
def call(capfd):
    """Runs a command in this process, and returns its exit code, its output and its errors."""

    def call(*arguments):
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main(arguments, prog_name="delta-variant")
        output, errors = capfd.readouterr()
        return end.value.code or 0, output, errors

    return call


@pytest.fixture
def run_here(spark, monkeypatch, call):
    """As `call`, in a new session of the shared JVM.

    `session` is that session. What a JVM of its own would print is the subject of test_demo and test_sessions in test_doctor.
    """

    def run_here(*arguments):
        return call(*arguments)

    run_here.session = spark.newSession()
    for key, value in INTERPRETED.items():
        run_here.session.conf.set(key, value)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", run_here.session)
    monkeypatch.setattr(SparkSession, "stop", lambda self: None)
    monkeypatch.setattr(SparkSession, "_activeSession", run_here.session)
    yield run_here
    # createDataFrame() in a command has made its session the active one, in Python and in the JVM.
    jvm.static(spark, "org.apache.spark.sql.classic.SparkSession").setActiveSession(spark._jsparkSession)


def test_the_name_of_the_command(tmp_path, monkeypatch):
    """The commands to try can be typed as they are shown: the script has its path if it is not the one on the PATH."""
    script = tmp_path / "an environment" / "delta-variant"
    script.parent.mkdir()
    script.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(script), "demo"])
    assert called() == f"'{script}'"
    monkeypatch.setenv("PATH", str(script.parent))
    assert called() == "delta-variant"
    monkeypatch.setattr(sys, "argv", ["a program"])
    assert called() == "delta-variant"


def test_no_java(tmp_path):
    """Without Java the demo ends with one sentence that says what to install."""
    done = run("demo", JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "install Java 17" in line


def test_an_older_java(call, tmp_path, monkeypatch):
    """With an older Java the demo ends with one sentence that names its version and says what to install."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    code, _, errors = call("demo")
    assert code == 1
    (line,) = errors.splitlines()
    assert "is version 11" in line
    assert "install Java 17" in line


@pytest.mark.spark
def test_jar(run_here, spark, tmp_path):
    """The JAR of the session is copied to a file or into a directory, with the settings that it is for."""
    made = jvm.loaded(spark).jar.path
    code, output, _ = run_here("jar", "--output", str(tmp_path / "new" / "dv.jar"))
    assert (code, output.split()[-1]) == (0, f"spark.sql.extensions={EXTENSIONS}")
    assert f"--jars {tmp_path}/new/dv.jar\n" in output
    code, output, _ = run_here("jar", "--output", str(tmp_path), "--json")
    assert (code, json.loads(output)) == (0, {"jar": str(tmp_path / made.name), "extensions": EXTENSIONS})
    assert run_here("jar", "--output", f"{tmp_path}/jars/")[0] == 0
    for file in ("new/dv.jar", made.name, f"jars/{made.name}"):
        assert (tmp_path / file).read_bytes() == made.read_bytes()


@pytest.mark.spark
@pytest.mark.slow
def test_ingest(run_here, tmp_path):
    """Files become a table, malformed lines another one; a second run loads nothing; errors are one line."""
    (tmp_path / "day=2026-11-01").mkdir()
    (tmp_path / "day=2026-11-01" / "a.json").write_text('{"id": 1}\n{"id":\n')
    arguments = ["ingest", str(tmp_path / "day=*"), str(tmp_path / "t"), "--folder", "day=date", "--constant", "source=test"]
    more = ["--bad-records", str(tmp_path / "bad"), "--partition-by", "id", "--conf", "spark.sql.session.timeZone=UTC"]
    more += ["--columns", "id=try_variant_get(v, '$.id', 'int')"]
    failed, done, again = run_here(*arguments), run_here(*arguments, *more), run_here(*arguments, *more, "--json")
    code, _, errors = failed
    assert code == 1
    assert "a.json, line 2: not a JSON document" in errors.splitlines()[-1]
    assert "Traceback" not in errors
    code, output, errors = done
    assert code == 0, errors
    assert f"{tmp_path / 't'} is at version 0: 1 rows of 1 files" in output
    assert "1 malformed documents are in" in output
    assert json.loads(again[1])["skipped"] == 1
    assert (tmp_path / "t" / "id=1").is_dir()
    (tmp_path / "day=2026-11-01" / "a.json").write_text('{"id": 1}\n{"id": 2}\n')
    os.utime(tmp_path / "day=2026-11-01" / "a.json", (1_700_000_000, 1_700_000_000))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, output, errors = run_here(*arguments, *more)
    assert (code, output) == (0, f"nothing to load: {tmp_path / 't'} has all 1 files, and 1 of them have changed since\n")
    assert "Warning: 1 file has changed since" in errors
    code, _, errors = run_here(*arguments, *more, "--changed", "error")
    assert code == 1
    assert "Error: 1 file has changed since" in errors.splitlines()[-1]
    code, output, errors = run_here(*arguments, *more, "--changed", "reload")
    assert code == 0, errors
    assert "is at version 1: 2 rows of 1 files" in output
    assert "1 files have changed since they were loaded, and were loaded again" in output


def test_a_reload_that_another_process_did(capsys):
    """If another process has loaded the changed files anew, nothing is said of changes since."""
    done = Ingested(None, 0, 0, 3, 0, 0, 0, 0, 0, changed=2)
    for reloads, said in ((True, ""), (False, ", and 2 of them have changed since")):
        _show_loaded(done, "t", "load", ".json", reloads=reloads)
        assert capsys.readouterr().out == f"nothing to load: t has all 3 files{said}\n"


def test_ingest_arguments(call):
    """Options that are no pairs are refused with a sentence, and the help shows an example."""
    code, _, errors = call("ingest", "a", "b", "--folder", "day")
    assert code == 2
    assert "day is not name=value" in errors
    assert "delta-variant ingest 'logs/*.json.gz' tables/logs" in call("ingest", "--help")[1]


def test_inspect_a_file(call, tmp_path):
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
    found = json.loads(call("inspect", file, "--json")[1])
    assert [path["path"] for path in found["paths"]] == ["$", "$['id']"]
    pa.parquet.write_table(pa.table({"id": [1]}), tmp_path / "plain.parquet")
    assert call("inspect", str(tmp_path / "plain.parquet"))[1] == f"{tmp_path / 'plain.parquet'} has no VARIANT columns\n"
    assert call("inspect", str(tmp_path / "plain.parquet"), "--json")[1] == ""
    code, _, errors = call("inspect", str(tmp_path / "missing.parquet"))
    assert code == 1
    assert "missing.parquet cannot be read: " in errors
    code, _, errors = call("inspect", str(tmp_path / "no UTF-8 \udcff.parquet"))
    assert code == 1
    assert "its name is not UTF-8 here: rename it, or set LC_ALL=C.UTF-8" in errors
    (tmp_path / "table.parquet").mkdir()  # a table, for which Spark is needed
    done = run("inspect", str(tmp_path / "table.parquet"), JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "Java" in done.stderr


def test_output_that_cannot_take_the_result(tmp_path):
    """Names that the encoding of the output lacks are written with escapes; a full device is an error that says so."""
    import os
    from pathlib import Path

    import pyarrow as pa

    import delta_variant as dv

    file = str(tmp_path / "e.parquet")
    dv.parquet.write_table(pa.table({"v": dv.arrow.VariantArray.from_pylist([{"日": 1}])}), file, shred={"v": "`日` bigint"})
    done = run("inspect", file, PYTHONIOENCODING="latin-1")
    assert done.returncode == 0, done.stderr
    assert "$['\\u65e5']" in done.stdout
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "inspect", file], stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=dict(os.environ)
        )
    assert done.returncode == 1
    assert "No space left on device: make room, or write the output elsewhere" in done.stderr


def make(spark, table):
    """Makes a table of delta-spark's, which has no bounds: a file with the ids 0 to 4 for one day, of 10 to 14 for the next."""
    document = "parse_json(to_json(struct(id, if(id < 10, 'x', 'y') AS text))) AS v"
    ids = spark.range(0, 15, 1, 1).where("id NOT BETWEEN 5 AND 9")
    rows = ids.selectExpr(document, "if(id < 10, date '2026-11-01', date '2026-11-02') AS day")
    rows.write.format("delta").option("delta.enableVariantShredding", "true").partitionBy("day").save(table)


@pytest.mark.spark
@pytest.mark.slow
def test_a_table(run_here, tmp_path):
    """A table is analyzed, looked at, explained and optimized; what cannot be done ends with one line and exit code 1."""
    table = str(tmp_path / "t")
    query = "SELECT v:text::string FROM e WHERE v:id::int = 12"
    commands = {
        "nothing": ["stats", table, "--path", "v:id"],
        "analyzed": ["analyze", table, "--json"],
        "stats": ["stats", table],
        "where": ["stats", table, "--path", "v:id", "--where", "day = '2026-11-02'", "--json"],
        "files": ["stats", table, "--files", "--path", "v:id", "--path", "v:text", "--json"],
        "inspected": ["inspect", table, "--json"],
        "explained": ["explain", query, "--table", f"e={table}"],
        "explained as JSON": ["explain", query, "--table", f"e={table}", "--json"],
        "optimized": ["optimize", table, "--cluster-by", "v:id", "--json"],
        "goes through an array": ["analyze", table, "--path", "v:a[0]"],
        "is a command (DeleteFromTable)": ["explain", f"  DELETE FROM delta.`{table}`"],
        "[PARSE_SYNTAX_ERROR]": ["explain", "SELEC 1"],
        "is not a predicate on the partition columns": ["stats", table, "--where", "v:id::int = 5"],
    }
    make(run_here.session, table)
    results = [run_here(*arguments) for arguments in commands.values()]
    output = dict(zip(commands, (output for _, output, _ in results), strict=True))
    assert [code for code, _, _ in results] == [0] * 9 + [1] * 4, results
    assert "has no bounds for v:id: delta-variant analyze" in output["nothing"]
    assert json.loads(output["analyzed"])["files"] == 2

    lines = {line.split()[0]: line.split() for line in output["stats"].splitlines()}
    assert lines["v:id"] == ["v:id", "BIGINT", "0", "14", "2", "of", "2", "1"]
    assert lines["v:text"] == ["v:text", "STRING", '"x"', '"y"', "2", "of", "2", "1"]
    [line] = output["where"].splitlines()
    assert json.loads(line) == {
        "path": "v:id", "type": "BIGINT", "min": 10, "max": 14, "files": 1, "files_total": 1, "opened": 1,
    }  # fmt: skip
    found = [json.loads(line) for line in output["files"].splitlines()]
    assert [(row["path"], row["min"], row["max"]) for row in found if row["path"] == "v:id"] == [
        ("v:id", 0, 4),
        ("v:id", 10, 14),
    ]
    assert [row["path"] for row in found] == ["v:id"] * 2 + ["v:text"] * 2
    assert {row["source"] for row in found} == {"delta-variant"}

    first, _ = [json.loads(line) for line in output["inspected"].splitlines()]
    [line] = [path for path in first["paths"] if path["path"] == "$['id']"]
    assert (line["min"], line["max"], line["typed"], line["proven"]) == ("0", "4", 5, True)
    assert "v:id::int = 12: rules out 1 of 2 files" in output["explained"]
    [scan] = json.loads(output["explained as JSON"])["scans"]
    assert (scan["files_total"], scan["files_after_bounds"], scan["findings"][0]["files_ruled_out"]) == (2, 1, 1)
    done = json.loads(output["optimized"])
    assert (done["commits"], done["files_kept"]) == (0, 2)

    for (_, printed, errors), message in list(zip(results, commands, strict=True))[9:]:
        *steps, last = errors.splitlines()
        assert printed == ""
        assert last.startswith("Error: ")
        assert message in last
        assert all(line.endswith("…") for line in steps), errors


def test_help(call):
    """The help has every command in one line, examples, and the exit codes; each command's help has examples that call it."""
    told = run("--help").stdout
    for name in main.list_commands(None):
        assert re.search(rf"^  {name} +\S", told, re.MULTILINE)
        assert f"  delta-variant {name}" in call(name, "--help")[1]
    assert "130  interrupted" in told
    assert call("optimise", "t")[0] == 2
    assert call("--version")[1] == f"delta-variant, version {__version__}\n"


def test_unforeseen_errors(call, tmp_path, monkeypatch):
    """An error that nobody foresaw is one line with exit code 3; with --debug, or the variable, its trace too."""
    unforeseen = ["inspect", str(tmp_path / "a\0b.parquet")]
    code, _, errors = call(*unforeseen)
    assert code == 3
    [line] = errors.splitlines()
    assert line.startswith("Error: ArrowInvalid: ")
    assert line.endswith("(--debug shows the trace)")
    debugged = [call("--debug", *unforeseen), call(*unforeseen, "--debug")]
    monkeypatch.setenv("DELTA_VARIANT_DEBUG", "1")
    for code, _, errors in (*debugged, call(*unforeseen)):
        assert code == 3
        assert "Traceback (most recent call last)" in errors
        assert errors.splitlines()[-1] == line


def test_the_picture():
    """Each range is a bar from its low to its high end, in the order of the low ends; many ranges are 24 lines of one width."""
    assert picture([(5, 6), (0, 4), (2, 2)], 3) == ["██▌", " ▌ ", "  ▐"]
    assert picture([(1, 1)] * 2, 2) == ["▌ "] * 2
    assert picture([]) == []
    many = picture([(n, n + 1) for n in range(1000)], 50)
    assert len(many) == 24
    assert {len(line) for line in many} == {50}
    assert [line.index(line.strip()) for line in many] == sorted(line.index(line.strip()) for line in many)


@pytest.mark.spark
@pytest.mark.slow
def test_interrupted(tmp_path):
    """Interrupted while Spark starts, a command ends with exit code 130 and one word."""
    process = subprocess.Popen([*COMMAND, "stats", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr.readline().startswith("Starting Spark")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out, err.splitlines()[-1]) == (130, "", "Interrupted"), err


@pytest.mark.spark
@pytest.mark.slow
def test_convert(run_here, tmp_path):
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
    other = ["convert", str(tmp_path / "b.parquet"), str(tmp_path / "u")]
    done, again, parsed, failed = (run_here(*each) for each in (arguments, [*arguments, "--json"], texts, other))
    code, output, errors = done
    assert code == 0, errors
    assert f"{tmp_path / 't'} is at version 0: 1 rows of 1 files" in output
    assert (tmp_path / "t" / "day=2026-11-01").is_dir()
    assert json.loads(again[1])["skipped"] == 1
    assert (json.loads(parsed[1])["version"], json.loads(parsed[1])["rows"]) == (1, 1)
    assert failed[0] == 1
    assert "none of the columns n is a VARIANT" in failed[2].splitlines()[-1]


def test_convert_arguments(call):
    """A source and texts exclude each other, and the help shows examples."""
    for arguments in (["t"], ["a", "t", "--parse-json", "v=j"], ["t", "--parse-json", "v=j", "--force"]):
        code, _, errors = call("convert", *arguments)
        assert code == 2
        assert "--parse-json" in errors
    assert "delta-variant convert tables/logs --parse-json v=value" in call("convert", "--help")[1]

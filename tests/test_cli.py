"""The command, run as a user runs it."""

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner
from numba.core.caching import _CacheLocator
from pyspark.sql import SparkSession

from delta_variant.cli import main
from delta_variant.cli.demo import called
from delta_variant.cli.picture import picture
from delta_variant.kernels import cache, validate
from delta_variant.version import __version__

COMMAND = [sys.executable, "-c", "from delta_variant.cli import main; main(prog_name='delta-variant')"]


def run(*arguments, **environment):
    import os

    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


@pytest.fixture
def run_here(spark, monkeypatch, capfd):
    """Runs a command in this process, in a new session of the shared JVM, and returns its exit code, its output and its errors.

    `session` is that session. What a JVM of its own would print is the subject of test_demo and test_doctor.
    """

    def run_here(*arguments):
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main(arguments)
        output, errors = capfd.readouterr()
        return end.value.code or 0, output, errors

    run_here.session = spark.newSession()
    monkeypatch.setattr(SparkSession, "_instantiatedSession", run_here.session)
    monkeypatch.setattr(SparkSession, "stop", lambda self: None)
    return run_here


@pytest.mark.spark
@pytest.mark.slow
def test_demo(jvm_environment, tmp_path):
    """The demo shows answers, opened files and seconds of three tables, pictures, and commands to try, and leaves the tables.

    The shredded table opens fewer files than the plain one and delta-spark's own; workers compile no kernel.
    """
    # A copy of the cache, since tests in other processes compile kernels too.
    caches = tmp_path / "kernels" / _CacheLocator.get_suitable_cache_subpath(validate.__file__)
    shutil.copytree(cache.place(), caches)
    before = {path.name for path in caches.glob("*.nbc")}
    folder = tmp_path / "it's"
    done = run("demo", "--path", str(folder), **{**jvm_environment, "NUMBA_CACHE_DIR": str(tmp_path / "kernels")})
    assert done.returncode == 0, done.stderr
    assert "22km NNE of Hualian, Taiwan" in done.stdout
    opened = re.findall(r"^  (\S+), (\S+) +opened +(\d+) of 20 files +\d+\.\d\d s$", done.stdout, re.MULTILINE)
    names = [("delta-variant", "shredded"), ("delta-variant", "plain"), ("delta-spark", "shredded")]
    assert [found[:2] for found in opened] == names * 3
    assert all(int(files) < 10 if (writer, layout) == names[0] else files == "20" for writer, layout, files in opened)
    time, magnitude = (done.stdout.split(f"event:properties.{key}: the range of each file")[1] for key in ("time", "mag"))
    bars = [line for line in time.split("event:properties.mag")[0].splitlines() if "│" in line]
    assert len(bars) == 20
    assert all(line.count("█") < 6 for line in bars)
    assert magnitude.count("█") > 20 * 20
    [suggested] = re.findall(r"--table (quakes=.*)", done.stdout)
    assert shlex.split(suggested) == [f"quakes={folder}/earthquakes"]
    tables = {path.name for path in folder.iterdir() if (path / "_delta_log").is_dir()}
    assert tables == {"earthquakes", "earthquakes_plain", "earthquakes_delta_spark"}
    assert "Traceback" not in done.stderr
    assert "WARN" not in done.stderr
    new = {path.name for path in caches.glob("*.nbc")} - before
    told = re.search(r"Compiled (\d+) kernels, once, in \d+ s; they are kept in", done.stderr)
    assert len(new) <= (int(told[1]) if told else 0)


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
def test_ingest(run_here, tmp_path):
    """Files become a table, malformed lines another one; a second run loads nothing; errors are one line."""
    (tmp_path / "day=2026-11-01").mkdir()
    (tmp_path / "day=2026-11-01" / "a.json").write_text('{"id": 1}\n{"id":\n')
    arguments = ["ingest", str(tmp_path / "day=*"), str(tmp_path / "t"), "--folder", "day=date", "--constant", "source=test"]
    more = ["--bad-records", str(tmp_path / "bad"), "--partition-by", "day", "--conf", "spark.sql.session.timeZone=UTC"]
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
    assert (tmp_path / "t" / "day=2026-11-01").is_dir()


def test_ingest_arguments():
    """Options that are no pairs are refused with a sentence, and the help shows an example."""
    refused = run("ingest", "a", "b", "--folder", "day")
    assert refused.returncode == 2
    assert "day is not name=value" in refused.stderr
    assert "delta-variant ingest 'logs/*.json.gz' tables/logs" in run("ingest", "--help").stdout


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


def make(spark, table):
    """Makes a table of delta-spark's, which has no bounds: a file with the ids 0 to 4 for one day, of 10 to 14 for the next."""
    for start, day in ((0, 1), (10, 2)):
        document = "parse_json(to_json(struct(id, if(id < 10, 'x', 'y') AS text))) AS v"
        rows = spark.range(start, start + 5).coalesce(1).selectExpr(document, f"date '2026-11-0{day}' AS day")
        written = rows.write.format("delta").option("delta.enableVariantShredding", "true").partitionBy("day")
        written.mode("append").save(table)


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


def test_help():
    """The help has every command in one line, examples, and the exit codes; each command's help has examples that call it."""
    told = run("--help").stdout
    for name in main.list_commands(None):
        assert re.search(rf"^  {name} +\S", told, re.MULTILINE)
        assert f"  delta-variant {name}" in run_quick(name, "--help")
    assert "130  interrupted" in told
    assert run("optimise", "t").returncode == 2
    assert run("--version").stdout == f"delta-variant, version {__version__}\n"


def run_quick(*arguments):
    """The output of a command that needs no session, run in this process."""
    return CliRunner().invoke(main, arguments).output


def test_unforeseen_errors(tmp_path):
    """An error that nobody foresaw is one line with exit code 3; with --debug, or the variable, its trace too."""
    missing = ["inspect", str(tmp_path / "missing.parquet")]
    once = run(*missing)
    assert once.returncode == 3
    [line] = once.stderr.splitlines()
    assert line.startswith("Error: FileNotFoundError: ")
    assert line.endswith("(--debug shows the trace)")
    for done in (run("--debug", *missing), run(*missing, "--debug"), run(*missing, DELTA_VARIANT_DEBUG="1")):
        assert done.returncode == 3
        assert "Traceback (most recent call last)" in done.stderr
        assert done.stderr.splitlines()[-1] == line


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


def test_convert_arguments():
    """A source and texts exclude each other, and the help shows examples."""
    for arguments in (["t"], ["a", "t", "--parse-json", "v=j"], ["t", "--parse-json", "v=j", "--force"]):
        refused = run("convert", *arguments)
        assert refused.returncode == 2
        assert "--parse-json" in refused.stderr
    assert "delta-variant convert tables/logs --parse-json v=value" in run("convert", "--help").stdout

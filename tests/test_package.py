"""The wheel: what is in it, and that it works where it is installed; and what a session of another Spark or Delta is told."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import venv
import weakref
import zipfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import delta_variant as dv
from delta_variant import jars, jvm
from delta_variant.errors import SessionError
from delta_variant.messages import encoded
from delta_variant.session import disable, enable
from tests.support import share
from tests.versions import PROJECT

ROOT = Path(__file__).parent.parent
pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built without a download: hatchling is installed with the tools for tests. A file stands for the JAR."""
    folder = tmp_path_factory.mktemp("wheel")
    project = folder / "project"
    package = shutil.copytree(ROOT / "delta_variant", project / "delta_variant", ignore=shutil.ignore_patterns("jars"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, project)
    (package / "jars").mkdir()
    (package / "jars" / "made.jar").touch()  # as by `make jars`
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--wheel-dir", folder, project], check=True, capture_output=True)
    [file] = folder.glob("*.whl")
    return file


def test_contents(wheel):
    """The wheel has every file of the package (Scala sources, data, py.typed), the JARs that `make jars` left, metadata,
    license, command; nothing else."""
    package = ROOT / "delta_variant"
    sources = {
        str(path.relative_to(ROOT))
        for path in package.rglob("*")
        if path.is_file() and {"__pycache__", "jars"}.isdisjoint(path.parent.relative_to(ROOT).parts)
    } | {"delta_variant/jars/made.jar"}
    assert {"delta_variant/py.typed", "delta_variant/scala/Messages.scala", "delta_variant/scala/Batches.java"} < sources
    assert "delta_variant/data/earthquakes.ndjson.zst" in sources
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = f"delta_variant-{dv.__version__}.dist-info"
        assert names == sources | {
            f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
        }
        assert archive.read(f"{info}/entry_points.txt").decode().split() == [
            "[console_scripts]", "delta-variant", "=", "delta_variant.cli:main",
        ]  # fmt: skip
        assert "Root-Is-Purelib: true" in archive.read(f"{info}/WHEEL").decode()


def imports(tree):
    """The top-level names of the modules that a file imports when it runs, wherever in it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        if isinstance(node, ast.ImportFrom):
            yield node.module.partition(".")[0]
        yield from imports(node)


def required(name, extra=""):
    """A distribution, and those that it requires."""
    found = {canonicalize_name(name)}
    for requirement in map(Requirement, metadata.requires(name) or []):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            found |= required(requirement.name)
    return found


def test_requirements():
    """Every module that the package imports is of a distribution that it requires; matplotlib of the extra `plot` alone.

    PySpark and delta-spark are of the extra `spark`: a platform's own are not replaced.
    """
    files = (ROOT / "delta_variant").rglob("*.py")
    names = {name for file in files for name in imports(ast.parse(file.read_text(encoding="utf-8")))}
    names -= {*sys.stdlib_module_names, "delta_variant"}
    providers = metadata.packages_distributions()
    given = required("delta-variant") | required("delta-variant", "spark")
    lacking = {name for name in names if not given & set(map(canonicalize_name, providers[name]))}
    assert lacking == {"matplotlib"}
    assert "matplotlib" in required("delta-variant", "plot")
    assert not {one.name for one in map(Requirement, PROJECT["dependencies"])} & {"pyspark", "delta-spark"}


def test_numba_has_an_upper_bound():
    """One module imports Numba and uses its internals. Numba is required up to a version that was tried, as that here is."""
    imports = re.compile(r"^\s*(from|import) (numba|llvmlite)\b", re.MULTILINE)
    package = ROOT / "delta_variant"
    importing = [file for file in package.rglob("*.py") if imports.search(file.read_text(encoding="utf-8"))]
    assert importing == [package / "kernels" / "compiler.py"]
    [numba] = [one for one in map(Requirement, PROJECT["dependencies"]) if one.name == "numba"]
    assert "<" in {one.operator for one in numba.specifier}
    assert metadata.version("numba") in numba.specifier


PROGRAM = """
import sys
import pyarrow as pa
import delta_variant as dv
from delta_variant import jars, jvm
from pyspark.sql import SparkSession

documents = [{"id": n, "name": f"x{n}"} for n in range(10)]
variants = pa.array([dict(zip(("metadata", "value"), dv.binary.encode(d))) for d in documents],
                    pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)]))
shredded = dv.shredding.shred(variants, dv.schema.parse("id bigint"))
assert [row["id"]["typed_value"] for row in shredded.field("typed_value").to_pylist()] == [*range(10)]
assert [dv.binary.decode(v["metadata"], v["value"]) for v in shredded.to_pylist()] == [{"name": f"x{n}"} for n in range(10)]
spark = dv.configure(SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")).getOrCreate()
dv.enable(spark)
print(jvm.loaded(spark).jar.path)
print(dv.__file__)
"""


@pytest.mark.spark
def test_an_empty_environment(spark, wheel, jvm_environment, tmp_path):
    """Installed in an environment of its own, the wheel runs from an empty directory: command, codec, and the rules.

    The dependencies are those of this environment, which the new one finds by a path file: nothing is downloaded. A JAR that
    the wheel has is used as it is: nothing is compiled.
    """
    home, empty = tmp_path / "venv", tmp_path / "empty"
    empty.mkdir()
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(install, check=True, capture_output=True)
    [site] = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(str(Path(pa.__file__).parent.parent) + "\n")
    jar = Path(shutil.copy(jvm.loaded(spark).jar.path, site / "delta_variant" / "jars"))
    file = tmp_path / "e.parquet"
    dv.parquet.write_table(pa.table({"v": _variants()}), file, shred={"v": "id bigint"})

    environment = {key: value for key, value in jvm_environment.items() if key != "PYTHONPATH"}

    def run(*command):
        done = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    command = home / "bin" / "delta-variant"
    assert run(command, "--version") == f"delta-variant, version {dv.__version__}\n"
    [path] = [path for path in json.loads(run(command, "inspect", file, "--json"))["paths"] if path["path"] == "$['id']"]
    assert path["typed"] == 2
    *_, used, installed = run(python, "-c", PROGRAM).splitlines()
    assert (Path(used), Path(installed).parent) == (jar, site / "delta_variant")


def _variants():
    rows = [dict(zip(("metadata", "value"), dv.binary.encode({"id": n}), strict=True)) for n in (1, 2)]
    return pa.array(rows, pa.struct([pa.field(name, pa.binary(), nullable=False) for name in ("metadata", "value")]))


# ---- the next Spark and the next Delta -----------------------------------------------------------------------------------

NEXT = """
import json, sys, warnings
from pathlib import Path
import delta_variant as dv
from delta_variant import jars
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
dv.configure(builder.config("spark.driver.extraClassPath", sys.argv[1]))._options.pop("spark.jars.packages")
spark = builder.getOrCreate()  # with the class path's JARs
jars._temporary.append(Path(sys.argv[2]))  # one of the directories in which compiled JARs are
with warnings.catch_warnings(record=True) as told:
    dv.enable(spark)
rows = spark.range(2).repartitionByRange(2, "id").selectExpr("parse_json(to_json(struct(id))) v")
dv.write(rows, "TABLE", shred={"v": "id bigint"})
hits = spark.read.format("delta").load("TABLE").where("v:id::int = 1")
print(json.dumps([[str(one.message) for one in told], hits.count(), dv.explain(hits).scans[0].files_after_bounds]))
"""


@pytest.mark.spark
def test_other_versions(spark, jvm_environment, tmp_path):
    """A session of a newer Spark and a newer Delta is tried, and works with one warning that names its versions.

    The JVM finds the file with Spark's version, and the class with Delta's, in a directory that comes before their JARs. The
    JAR for these versions is there, as if it had been compiled before: the same classes, and other constants.
    """
    jar = next(Path(sys.modules["pyspark"].__file__).parent.glob("jars/spark-common-utils_*.jar"))
    name = "spark-version-info.properties"
    with zipfile.ZipFile(jar) as archive:
        (tmp_path / name).write_text(archive.read(name).decode().replace(f"version={spark.version}", "version=4.3.0"))
    compiler = jvm.static(spark, "org.codehaus.janino.SimpleCompiler")()
    source = 'public static final package$ MODULE$ = new package$(); public String VERSION() { return "4.5.0"; }'
    compiler.cook(f"package io.delta; public class package$ {{ {source} }}")
    (tmp_path / "io" / "delta").mkdir(parents=True)
    (tmp_path / "io" / "delta" / "package$.class").write_bytes(bytes(next(iter(compiler.getBytecodes().values()))))
    compiled = tmp_path / "compiled"
    compiled.mkdir()
    versions = replace(jvm._versions(spark), spark="4.3.0", delta="4.5.0")
    constants = encoded(jars._constants(versions, jars.digest()))
    with (
        zipfile.ZipFile(jvm.loaded(spark).jar.path) as archive,
        zipfile.ZipFile(compiled / jars._name(versions, jars._texts()), "w") as other,
    ):
        for name in archive.namelist():
            other.writestr(name, constants if name.endswith("/constants.json") else archive.read(name))
    program = NEXT.replace("TABLE", str(tmp_path / "t"))
    command = [sys.executable, "-c", program, tmp_path, compiled]
    done = subprocess.run(command, env=jvm_environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "compiling" not in done.stderr
    [message], rows, files = json.loads(done.stdout)
    assert "this session runs Spark 4.3.0 with Delta 4.5.0, and delta-variant" in message
    assert (rows, files) == (1, 1)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("old", "new"),
    share(
        [
            (b"PreparedDeltaFileIndex", b"PreparedDeltaFileIndexV2"),  # a class that has another name
            (b"metadata.configuration", b"metadata.settings"),  # a method that is gone
        ],
        2,
    ),
)
def test_other_internals(spark, monkeypatch, old, new):
    """If a class or a method that the rules use is gone, although the versions fit, enable names the versions, what is missing,
    and what to do, and changes nothing."""
    session = spark.newSession()
    texts = {name: text.replace(old, new) for name, text in jars._texts().items()}
    monkeypatch.setattr(jvm, "_loaded", weakref.WeakKeyDictionary())
    monkeypatch.setattr(jars, "_texts", lambda: texts)
    with pytest.raises(SessionError, match=r"Spark 4\.2.* with Delta 4\.4.*delta-variant supports") as raised:
        enable(session)
    assert new.decode().split(".")[-1] in str(raised.value)
    assert jvm.rules(session) == []
    monkeypatch.undo()
    enable(session)
    disable(session)


@pytest.mark.spark
def test_without_delta(tmp_path):
    """A session without Delta's JARs is told how to make one that has them."""
    program = (
        "from pyspark.sql import SparkSession; import delta_variant as dv\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "try: dv.enable(spark)\n"
        "except dv.errors.SessionError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "no Delta Lake: make it with delta_variant.configure" in done.stdout, done.stderr

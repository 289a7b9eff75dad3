"""The JAR of the JVM side: it is compiled once, and no JAR is used that is damaged or made of other sources.

Each test runs processes with a package of few lines: the modules that find and compile the JAR, and one tiny Scala source.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

import delta_variant

pytestmark = pytest.mark.spark  # it needs Java

SOURCE = "package tiny\nobject Tiny { def twice(n: Int): Int = 2 * n }\n"
BROKEN = "package tiny\nobject Tiny {\n  def one: Int = gone\n  def two: Int = 1.later\n  def rest = a + b + c\n}\n"
MODULES = ("jars", "constants", "pairs", "directories", "errors", "messages", "version")
COMPILER = [str(jar) for jar in sorted(Path(pyspark.__file__).parent.glob("jars/scala-*.jar"))]

SCRIPT = """
import os, resource, sys
from pathlib import Path
from delta_variant import errors, jars

if "LIMIT" in os.environ:  # the largest file that can be written, in bytes
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["LIMIT"]),) * 2)
scala, java, *class_path = sys.argv[1:]
versions = jars.Versions("4.2.0", "4.4.0", scala)
try:
    jar = jars.found(versions) or jars.compiled(versions, Path(java), class_path)
    print(jar.path, "found" if jar.seconds is None else "compiled", jar.path.exists())
except errors.SessionError as error:
    print(error)
"""


def package(folder, source=SOURCE):
    """A package in a folder. The directory beside its sources cannot be written to, whichever user runs this."""
    home = folder / "delta_variant"
    (home / "scala").mkdir(parents=True)
    (home / "__init__.py").touch()
    (home / "scala" / "Tiny.scala").write_text(source)
    (home / "scala" / "__pycache__").touch()
    for module in MODULES:
        shutil.copy(Path(delta_variant.__file__).with_name(f"{module}.py"), home)
    return folder


def start(path, java=None, scala="2.13", class_path=COMPILER, **environment):
    """Starts the script in a process that has no home."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "XDG", "JAVA_TOOL"))}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, scala, java or shutil.which("java"), *class_path],
        env={**known, "HOME": "/dev/null", "PYTHONPATH": str(path), **{key: str(value) for key, value in environment.items()}},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        cwd="/",
    )  # fmt: skip


def told(process):
    """The path of the JAR, whether it was found or compiled, and what standard error says."""
    out, err = process.communicate()
    assert process.returncode == 0, err
    path, how, exists = out.split()
    assert exists == "True"
    return Path(path), how, err


def refused(process):
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert out.startswith("delta-variant ")
    return out


def classes(jar):
    with zipfile.ZipFile(jar) as archive:
        return {name for name in archive.namelist() if name.endswith(".class")}


TINY = {"tiny/Tiny.class", "tiny/Tiny$.class"}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The package, and the JAR of its source, compiled once."""
    folder = package(tmp_path_factory.mktemp("tiny"))
    return folder, told(start(folder, NUMBA_CACHE_DIR=folder / "cache"))[0]


@pytest.fixture
def cache(tiny, tmp_path):
    """A cache with the JAR of the package."""
    (tmp_path / "cache" / "delta_variant").mkdir(parents=True)
    return Path(shutil.copy(tiny[1], tmp_path / "cache" / "delta_variant"))


def test_its_name(tiny):
    """The JAR is named by the versions and a digest, and has the classes of the sources. No other file is left beside it."""
    prefix = f"delta-variant-{delta_variant.__version__}-spark-4.2.0-delta-4.4.0-"
    assert tiny[1].name.startswith(prefix)
    assert len(tiny[1].name) == len(prefix) + len("0123456789abcdef.jar")
    assert classes(tiny[1]) == TINY
    assert list(tiny[1].parent.iterdir()) == [tiny[1]]


def test_processes_at_once(tiny, tmp_path):
    """Of processes that need the JAR at once, one compiles it and says so; all get it, and a later one has nothing to say."""
    running = [start(tiny[0], NUMBA_CACHE_DIR=tmp_path) for _ in range(3)]
    results = [told(process) for process in running]
    assert sorted(how for _, how, _ in results) == ["compiled", "found", "found"]
    assert len({path for path, _, _ in results}) == 1
    directory = results[0][0].parent
    about = "its Spark extensions for Spark 4.2.0 and Delta 4.4.0"
    line = f"delta-variant: compiling {about}, once on this machine, into {directory}\n"
    assert [err for _, how, err in results if how == "compiled"] == [line]
    assert all(err.startswith("delta-variant: waiting") or err == "" for _, how, err in results if how == "found")
    assert told(start(tiny[0], NUMBA_CACHE_DIR=tmp_path)) == (results[0][0], "found", "")


def test_killed(tiny, tmp_path):
    """What a killed process leaves is not used, does not keep others waiting, and is removed by the next one that compiles."""
    process = start(tiny[0], NUMBA_CACHE_DIR=tmp_path)
    assert process.stderr.readline().startswith("delta-variant: compiling")
    directory = tmp_path / "delta_variant"
    while not list(directory.glob("*.tmp/arguments")):
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert list(directory.glob("*.jar")) == []
    jar, how, _ = told(start(tiny[0], NUMBA_CACHE_DIR=tmp_path))
    assert how == "compiled"
    assert list(directory.iterdir()) == [jar]


def test_a_read_only_cache(tiny, cache):
    """A JAR in a directory that cannot be written to is used, and the directory stays as it is."""
    cache.parent.chmod(0o555)
    before = cache.parent.stat()
    java = "/nowhere/java"
    assert told(start(tiny[0], java, NUMBA_CACHE_DIR=cache.parent.parent)) == (cache, "found", "")
    assert cache.parent.stat().st_mtime_ns == before.st_mtime_ns


def test_a_home(tiny, cache, tmp_path):
    """Without NUMBA_CACHE_DIR, a JAR in the user's cache is used: below XDG_CACHE_HOME, or below the home directory."""
    for place, environment in ((".cache/delta-variant", "HOME"), ("delta-variant", "XDG_CACHE_HOME")):
        jar = tmp_path / environment / place / cache.name
        jar.parent.mkdir(parents=True)
        shutil.copy(cache, jar)
        assert told(start(tiny[0], **{environment: tmp_path / environment})) == (jar, "found", "")


def test_beside_the_sources(tmp_path):
    """If the directory of the package can be written to, the JAR is beside the sources."""
    (package(tmp_path) / "delta_variant/scala/__pycache__").unlink()
    jar, how, _ = told(start(tmp_path))
    assert (jar.parent, how) == (tmp_path / "delta_variant/scala/__pycache__", "compiled")


def test_no_home(tiny, tmp_path):
    """If neither the package nor a home can be written to, the JAR is in a directory of the user's own in the temporary one."""
    jar, how, _ = told(start(tiny[0], TMPDIR=tmp_path))
    assert (jar.parent, how) == (tmp_path / f"delta-variant-{os.geteuid()}", "compiled")
    assert stat.S_IMODE(jar.parent.stat().st_mode) == 0o700
    assert told(start(tiny[0], TMPDIR=tmp_path)) == (jar, "found", "")


def test_no_place(tiny, cache, tmp_path):
    """If that directory is open to others, a JAR in it is not used. The process then has one of its own, which ends with it."""
    planted = tmp_path / f"delta-variant-{os.geteuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    shutil.copy(cache, planted)
    jar, how, err = told(start(tiny[0], TMPDIR=tmp_path))
    assert (jar.parent.parent, how) == (tmp_path, "compiled")
    assert "for this process alone" in err
    assert not jar.parent.exists()
    assert list(planted.iterdir()) == [planted / cache.name]


def test_damaged(tiny, cache):
    """A JAR that is cut off is compiled again."""
    os.truncate(cache, cache.stat().st_size - 100)
    assert told(start(tiny[0], NUMBA_CACHE_DIR=cache.parent.parent))[:2] == (cache, "compiled")
    assert classes(cache) == TINY


def test_other_sources(cache, tmp_path):
    """Another text of a source makes another JAR, beside the first one, and another version of Scala needs one more."""
    changed, place = package(tmp_path, SOURCE.replace("Tiny", "Small")), {"NUMBA_CACHE_DIR": cache.parent.parent}
    jar, how, _ = told(start(changed, **place))
    assert (how, {*cache.parent.iterdir()}) == ("compiled", {cache, jar})
    assert classes(jar) == {"tiny/Small.class", "tiny/Small$.class"}
    assert "no Java" in refused(start(changed, "/nowhere/java", scala="2.13.99", **place))


def test_a_wheel_with_the_jar(cache, tmp_path):
    """A JAR that the package brings is used as it is, before one in a cache, and without Java; not for other sources."""
    brought = package(tmp_path) / "delta_variant" / "jars" / cache.name
    brought.parent.mkdir()
    shutil.copy(cache, brought)
    environment = {"NUMBA_CACHE_DIR": cache.parent.parent}
    assert told(start(tmp_path, "/nowhere/java", **environment)) == (brought, "found", "")
    (tmp_path / "delta_variant" / "scala" / "Other.scala").write_text("package other")
    assert "no Java" in refused(start(tmp_path, "/nowhere/java", **environment))


def zipped(folder, archive):
    with zipfile.ZipFile(archive, "w") as file:
        for path in (folder / "delta_variant").rglob("*"):
            if path.is_file() and path.name != "__pycache__":
                file.write(path, path.relative_to(folder))
    return archive


def test_an_archive(tiny, cache, tmp_path):
    """A package in an archive, as `--py-files` ships it, compiles its sources. A JAR that it has is copied out of it once."""
    own = tmp_path / f"delta-variant-{os.geteuid()}" / cache.name
    first = zipped(tiny[0], tmp_path / "first.zip")
    assert told(start(first, TMPDIR=tmp_path))[:2] == (own, "compiled")
    assert classes(own) == TINY
    second = zipped(package(tmp_path / "with"), tmp_path / "second.zip")
    with zipfile.ZipFile(second, "a") as archive:
        archive.write(cache, f"delta_variant/jars/{cache.name}")
    own.unlink()
    for _ in range(2):
        assert told(start(second, "/nowhere/java", TMPDIR=tmp_path)) == (own, "found", "")
        assert own.read_bytes() == cache.read_bytes()


def test_what_does_not_compile(tmp_path):
    """If the sources do not fit the session's classes, one error names the versions, the first places, and what to do."""
    error = refused(start(package(tmp_path, BROKEN), NUMBA_CACHE_DIR=tmp_path / "cache"))
    assert "which runs Spark 4.2.0 with Delta 4.4.0 (Tiny.scala:3: not found: value gone; Tiny.scala:4: value later " in error
    assert "and 2 more errors): install versions that delta-variant supports, Spark 4.0.1 to 4.2 with Delta 4.2 to 4.4" in error
    assert [file.suffix for file in (tmp_path / "cache" / "delta_variant").iterdir()] == [".lock"]


def test_what_is_missing(tiny, tmp_path):
    """Without Java, without the Scala compiler, with a full disk, and if the system ends the compiler, an error says so."""
    place = {"NUMBA_CACHE_DIR": tmp_path}
    dying = tmp_path / "java"
    dying.write_text("#!/bin/sh\nkill -9 $$\n")
    dying.chmod(0o755)
    assert "there is no Java at /nowhere/java" in refused(start(tiny[0], "/nowhere/java", **place))
    library = [jar for jar in COMPILER if "compiler" not in Path(jar).name]
    assert "no Scala compiler" in refused(start(tiny[0], class_path=library, **place))
    full = refused(start(tiny[0], LIMIT=len(SOURCE) // 2, **place))
    assert "File too large" in full
    assert "set NUMBA_CACHE_DIR" in full
    assert "signal 9 ended the compiler" in refused(start(tiny[0], str(dying), **place))
    assert list((tmp_path / "delta_variant").glob("*.jar")) == []

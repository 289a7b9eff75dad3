"""Tools for the Scala sources, which `make` calls: `python -m tests.scala lint`, `format`, `jar` or `jars`.

Scalafmt and Delta's JARs come from Maven Central by the Ivy that is among PySpark's JARs, once, into the environment of this
Python. Java is the one that Spark would start.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import pyspark

from delta_variant import jars
from delta_variant.session import check_java

ROOT = Path(__file__).parent.parent
SOURCES = sorted(str(file.relative_to(ROOT)) for file in ROOT.glob("delta_variant/scala/*.scala"))
SPARK_JARS = sorted(Path(pyspark.__file__).parent.glob("jars/*.jar"))
CACHE = Path(sys.prefix, "ivy")
SCALAFMT = ("org.scalameta", "scalafmt-cli_2.13", "3.7.17")  # the last one with a command
WARNINGS = ("-Xlint", "-Wunused", "-deprecation", "-feature", "-unchecked", "-Werror")


def _java() -> Path:
    return Path(check_java().split(", ", 1)[1])


def _spark_jar(name: str) -> Path:
    return next(jar for jar in SPARK_JARS if jar.name.startswith(f"{name}-"))


def _resolved(organisation: str, module: str, version: str, *options: str) -> list[str]:
    """The JARs of a module of Maven Central, and of those that it requires."""
    known = CACHE / f"{module}-{version}.classpath"
    if not known.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            found = Path(folder, "classpath")
            ivy = [_java(), "-jar", _spark_jar("ivy"), "-warn", "-cache", CACHE, "-confs", "default", "-types", "jar", "bundle"]
            what = ["-dependency", organisation, module, version, *options, "-cachepath", found]
            done = subprocess.run([*ivy, *what], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.exit(f"{module} {version} cannot be downloaded:\n{done.stdout}{done.stderr}")
            found.replace(known)
    return known.read_text(encoding="utf-8").strip().split(os.pathsep)


def _class_path() -> list[str]:
    """Spark's and Delta's JARs, for the compiler."""
    spark, delta = pyspark.__version__.rsplit(".", 1)[0], metadata.version("delta-spark")
    modules = (f"delta-spark_{spark}_2.13", "delta-storage")
    return [*map(str, SPARK_JARS), *(jar for name in modules for jar in _resolved("io.delta", name, delta, "-notransitive"))]


def _versions() -> jars.Versions:
    scala = _spark_jar("scala-library").stem.removeprefix("scala-library-")
    return jars.Versions(pyspark.__version__, metadata.version("delta-spark"), scala)


def _scalafmt(*options: str) -> int:
    command = ["org.scalafmt.cli.Cli", "--config", ".scalafmt.conf", "--non-interactive", *options, *SOURCES]
    java = [_java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", os.pathsep.join(_resolved(*SCALAFMT))]
    return subprocess.run([*java, *command], cwd=ROOT, check=False).returncode


def lint() -> int:
    """The sources are formatted, and compile without a warning."""
    formatted = _scalafmt("--test")
    with tempfile.TemporaryDirectory() as folder:
        done = jars.scalac(_java(), _class_path(), [*WARNINGS, "-d", folder, *SOURCES], Path(folder))
    print(done.stdout, end="")
    return formatted or done.returncode


def reformat() -> int:
    """Formats the sources."""
    return _scalafmt()


def jar() -> int:
    """Compiles the JAR into the cache, where tests and sessions of this checkout find it."""
    print((jars.found(_versions()) or jars.compiled(_versions(), _java(), _class_path())).path)
    return 0


def carried() -> int:
    """Compiles the JAR for the installed Spark and Delta into the package, for wheels that are built from here."""
    folder = ROOT / "delta_variant" / "jars"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.jar"):
        old.unlink()
    print(jars.build(folder, _versions(), _java(), _class_path()))
    return 0


if __name__ == "__main__":
    commands = {"lint": lint, "format": reformat, "jar": jar, "jars": carried}
    sys.exit(commands[sys.argv[1]]())

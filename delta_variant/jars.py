"""The JAR of the JVM side: `found`, or `compiled` from the Scala sources of this package.

In: the versions of Spark, Delta and Scala, and for the compiler the driver's Java and class path. Out: a JAR for these
versions. Its name has the versions of this package, Spark and Delta, and a digest of the sources and the version of Scala.

The compiler is the one among PySpark's own JARs. It runs in a process of its own, so that the driver needs no memory for it.
The JAR stays in the first of these directories that can be written to, and is used from whichever has it:

1. `delta_variant` in `NUMBA_CACHE_DIR`, where compiled kernels are, too;
2. `__pycache__` beside the sources, if they are not in an archive (Spark's `--py-files`);
3. `delta-variant` in the user's cache, which `XDG_CACHE_HOME` names, by default `~/.cache`;
4. a directory of the user's own in the temporary directory (`directories`);
5. if none of them can be written to, a temporary directory that is removed at the end of this process.

A wheel can bring JARs in `delta_variant/jars`. They are used before all others and need no compiler.

Invariants: a JAR gets its name when it is complete. If several processes need the same JAR at once, one compiles it and the
others wait. Where files cannot be locked, each process compiles it and renames an equal JAR. A damaged file is compiled again.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import IO, TYPE_CHECKING

from delta_variant import constants, pairs
from delta_variant.directories import own_directory
from delta_variant.errors import SessionError
from delta_variant.messages import Constants, encoded
from delta_variant.version import __version__

if TYPE_CHECKING:
    from importlib.abc import Traversable

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# The compiler ends before the JVM's optimizing compiler would pay off. It recurses into expressions, however deep they are.
_JVM_OPTIONS = ("-XX:+IgnoreUnrecognizedVMOptions", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xss8m")
# Variables that start agents or print lines in every JVM of the user.
_OPTION_VARIABLES = frozenset({"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH"})
_ERROR = re.compile(r"^(?:.*[/\\])?([^/\\\n]+\.scala:\d+): error: (.*)", re.MULTILINE)
_MAIN = "scala.tools.nsc.Main"
_FOLDER = "org/apache/spark/sql/delta/variant"
_ELSEWHERE = "set NUMBA_CACHE_DIR to a directory that you own and that has room"

_temporary: list[Path] = []
"""The directory that is removed at the end of this process, if one was needed."""


@dataclass(frozen=True)
class Versions:
    """What a JAR is compiled against."""

    spark: str
    delta: str
    scala: str


@dataclass(frozen=True)
class Jar:
    path: Path
    seconds: float | None = None
    """How long it took to compile it just now; None if it was there."""


def found(versions: Versions) -> Jar | None:
    """The JAR for these versions that the package brings or that was compiled before; None if there is none."""
    name = _name(versions, _texts())
    carried = _package("jars").joinpath(name)
    for jar in (*([carried] if isinstance(carried, Path) else []), *(directory / name for directory in _directories())):
        if _is_jar(jar):
            return Jar(jar)
    if not isinstance(carried, Path) and carried.is_file():  # in an archive, where no class loader reads it
        with suppress(OSError):
            directory = _writable()
            with _renamed(directory, name) as jar:
                jar.write_bytes(carried.read_bytes())
            return Jar(directory / name)
    return None


def compiled(versions: Versions, java: Path, class_path: Sequence[str]) -> Jar:
    """Compiles the JAR for these versions, unless another process does so meanwhile. A line on standard error says so.

    java: the executable. class_path: JARs and directories that have Spark, Delta and the Scala compiler.

    Raises SessionError if the sources do not compile against these classes, or if the JAR cannot be written.
    """
    about = f"its Spark extensions for Spark {versions.spark} and Delta {versions.delta}"
    try:
        directory = _writable()
        lock = directory / f"{_name(versions, _texts())}.lock"
        with _locked(lock, f"waiting for another process that compiles {about}") as locked:
            jar = found(versions)
            if jar is None:
                once = "once on this machine" if directory not in _temporary else "for this process alone"
                _tell(f"compiling {about}, {once}, into {directory}")
                start = time.monotonic()
                jar = Jar(build(directory, versions, java, class_path, alone=locked), time.monotonic() - start)
                lock.unlink(missing_ok=True)  # processes that wait for it find the JAR
            return jar
    except OSError as error:
        raise _failure(versions, str(error), _ELSEWHERE) from error


def build(directory: Path, versions: Versions, java: Path, class_path: Sequence[str], *, alone: bool = False) -> Path:
    """Compiles the JAR for these versions into a directory. Raises SessionError, and OSError if it cannot be written.

    alone: whether no other process compiles it here, so that files of killed ones can be removed.
    """
    texts = _texts()
    name = _name(versions, texts)
    if alone:
        for left in directory.glob(f"{name}.*.tmp"):
            shutil.rmtree(left, ignore_errors=True)
    with _renamed(directory, name) as jar:
        for source, text in texts.items():
            (jar.parent / source).write_bytes(text)
        _compile(jar, versions, java, class_path, sorted(texts))
        with zipfile.ZipFile(jar, "a", zipfile.ZIP_DEFLATED) as archive:
            for resource, text in _resources().items():
                archive.writestr(f"{_FOLDER}/{resource}", text)
            archive.writestr(f"{_FOLDER}/constants.json", encoded(_constants(versions, _digest(texts))))
    return directory / name


# ---- names and places --------------------------------------------------------------------------------------------------------


def _package(folder: str) -> Traversable:
    return files("delta_variant").joinpath(folder)


def _texts() -> dict[str, bytes]:
    """The Scala sources, by their names."""
    return {file.name: file.read_bytes() for file in _package("scala").iterdir() if file.name.endswith(".scala")}


def _resources() -> dict[str, bytes]:
    """The files of the JAR beside classes and constants, by name: `scala/Batches.java`."""
    return {file.name: file.read_bytes() for file in _package("scala").iterdir() if file.name.endswith(".java")}


def _constants(versions: Versions, digest: str) -> Constants:
    """The constants that Python and the JVM share (`scala/Resources.scala`)."""
    return Constants(
        version=__version__,
        digest=digest,
        spark=versions.spark,
        delta=versions.delta,
        settings=constants.SETTINGS,
        defaults=constants.DEFAULTS,
        marker=constants.BOUNDS_TAG,
        marker_values=constants.BOUNDS_TAG_VALUES,
        typed_values=(constants.TYPED_TAG_VALUE,),
        nonnull=constants.NONNULL_TAG,
        times=constants.TIMES_TAG,
    )


def digest() -> str:
    """The digest of the contents of a JAR, without the versions. Python and the JVM must have the same one."""
    return _digest(_texts())


def _digest(texts: Mapping[str, bytes], *more: str) -> str:
    found = hashlib.blake2b("\0".join(more).encode(), digest_size=8)
    common = encoded(_constants(Versions("", "", ""), "")).encode()
    for name, text in sorted({**texts, **_resources(), "constants.json": common}.items()):
        found.update(f"\0{name}\0{len(text)}\0".encode() + text)
    return found.hexdigest()


def _name(versions: Versions, texts: Mapping[str, bytes]) -> str:
    digest = _digest(texts, versions.scala)
    name = f"delta-variant-{__version__}-spark-{versions.spark}-delta-{versions.delta}-{digest}.jar"
    return re.sub(r"[^\w.+-]", "_", name)


def _directories() -> Iterator[Path]:
    """The directories in which the JAR may be, in the order in which they are written to."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        yield Path(chosen, "delta_variant").absolute()
    sources = _package("scala")
    if isinstance(sources, Path):
        yield sources / "__pycache__"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111  # pathlib's raises without a home
    if cache.is_absolute():
        yield cache / "delta-variant"
    own = own_directory()
    if own is not None:
        yield own
    yield from _temporary


def _writable() -> Path:
    """The first of the directories that can be written to."""
    for directory in _directories():
        if _can_write(directory):
            return directory
    _temporary.append(Path(tempfile.mkdtemp(prefix="delta-variant-")))
    atexit.register(shutil.rmtree, _temporary[-1], ignore_errors=True)
    return _temporary[-1]


def _can_write(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError:
        return False
    return True


def _is_jar(file: Path) -> bool:
    """Whether a file is a complete JAR: an archive has its directory at the end."""
    try:
        with zipfile.ZipFile(file) as archive:
            return any(name.endswith(".class") for name in archive.namelist())
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


@contextmanager
def _renamed(directory: Path, name: str) -> Iterator[Path]:
    """Yields a file in a temporary folder. It moves to this name in the directory when the block ends without an error."""
    with tempfile.TemporaryDirectory(prefix=f"{name}.", suffix=".tmp", dir=directory) as folder:
        file = Path(folder, name)
        yield file
        file.replace(directory / name)


@contextmanager
def _locked(file: Path, waiting: str) -> Iterator[bool]:
    """Lets in one process at a time. The system lets in the next one when a process ends, however it ends.

    waiting: what standard error says while another process is in. Yields False where files cannot be locked.
    """
    try:
        lock = file.open("w")
    except OSError:  # it is another user's
        yield False
        return
    with lock:
        yield fcntl is not None and _lock(lock, waiting)


def _lock(lock: IO[str], waiting: str) -> bool:
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _tell(waiting)
            fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:  # file systems without locks
        return False
    return True


def _tell(text: str) -> None:
    clear = "\r\033[K" if sys.stderr.isatty() else ""  # of the line that a command shows while it waits
    sys.stderr.write(f"{clear}delta-variant: {text}\n")
    sys.stderr.flush()


# ---- the compiler ------------------------------------------------------------------------------------------------------------


def scalac(java: Path, class_path: Sequence[str], arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the Scala compiler that is on the class path. Its output has the errors.

    folder: gets a file with the arguments. Raises OSError if there is no Java.
    """
    compiler = [entry for entry in class_path if Path(entry).name.startswith("scala-")]  # each class is looked for in order
    words = [*_JVM_OPTIONS, "-cp", os.pathsep.join([*compiler, *class_path]), _MAIN, "-encoding", "UTF-8"]
    words += ["-classpath", os.pathsep.join(class_path), *arguments]
    file = folder / "arguments"  # a class path can be longer than the system lets an argument be
    file.write_bytes(os.fsencode("\n".join('"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"' for word in words)))
    return subprocess.run(  # noqa: S603  # the driver's own Java
        [java, f"@{file}"], check=False, text=True, errors="replace",
        env={name: value for name, value in os.environ.items() if name not in _OPTION_VARIABLES},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def _compile(jar: Path, versions: Versions, java: Path, class_path: Sequence[str], sources: Sequence[str]) -> None:
    """Compiles sources beside the JAR. Raises SessionError, and OSError if something cannot be written."""
    if shutil.which(java) is None:
        raise _failure(versions, f"there is no Java at {java}", "run Spark with a Java that has this command")
    paths = [str(jar.parent / source) for source in sources]
    done = scalac(java, class_path, ["-nowarn", "-d", str(jar), *paths], jar.parent)
    if done.returncode != 0 or not _is_jar(jar):
        raise _failure(versions, *_reason(done.returncode, done.stdout.replace(f"{jar.parent}{os.sep}", "")))


def _reason(code: int, output: str) -> tuple[str, str]:
    """Why the compiler failed, and what to do."""
    errors = [f"{position}: {text}" for position, text in _ERROR.findall(output)]
    if errors:
        more = [f"and {len(errors) - 3} more errors"] if len(errors) > 3 else []
        return "; ".join([*errors[:3], *more]), pairs.ADVICE
    if _MAIN in output and "ClassNotFoundException" in output:
        advice = (
            "add scala-compiler, which is among the JARs of pip's PySpark, or take a wheel of delta-variant that has this JAR"
        )
        return "the driver's class path has no Scala compiler", advice
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    cause = "; ".join(lines[:2]) or (f"signal {-code} ended the compiler" if code < 0 else f"it ended with code {code}")
    if code < 0 or "OutOfMemoryError" in output:
        return cause, "let the machine have 512 MB of free memory"
    return cause, _ELSEWHERE if "space" in output else pairs.ADVICE


def _failure(versions: Versions, cause: str, advice: str) -> SessionError:
    return SessionError(
        f"delta-variant {__version__} cannot compile its Spark extensions for this session, which runs Spark {versions.spark} "
        f"with Delta {versions.delta} ({cause})",
        advice=advice,
    )

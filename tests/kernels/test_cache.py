"""The cache of compiled kernels, which processes share: where it is, and that no process runs code for another type.

Also that a kernel is compiled once, whoever made the arrays that it reads.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

import delta_variant
from delta_variant import binary, shredding
from delta_variant.directories import own_directory
from delta_variant.kernels import compiler
from tests import tasks
from tests.support import share

# A kernel for two types, called for both in an order that an argument gives.
KERNEL = """
import sys
import numpy as np
from delta_variant.kernels.compiler import jit

@jit
def half(values):
    return values[0] / 2

for kind in sys.argv[1:]:
    print(kind, half(np.array([7], kind)), half.stats.cache_path or "nowhere", sum(half.stats.cache_hits.values()))
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A copy of the package in which Numba cannot write, whichever user runs it, and beside it a script with a kernel."""
    folder = tmp_path_factory.mktemp("elsewhere")
    package = shutil.copytree(
        Path(delta_variant.__file__).parent, folder / "delta_variant", ignore=shutil.ignore_patterns("__pycache__")
    )
    for source in (package / "kernels", folder):
        (source / "__pycache__").touch()
    (folder / "kernel.py").write_text(KERNEL)
    return folder


def start(folder, *kinds, **environment):
    """Starts the script in a process that has no home directory."""
    known = {key: value for key, value in os.environ.items() if not key.startswith(("NUMBA", "XDG"))}
    return subprocess.Popen(
        [sys.executable, folder / "kernel.py" if folder.is_dir() else folder, *kinds],
        env={**known, "HOME": "/dev/null", "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]), **environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def told(process):
    """What the script printed for each type: the result, the path of the cache, and how many cache hits there were by then."""
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert err == ""
    rows = [line.split() for line in out.splitlines()]
    return {kind: (float(result), place, int(hits)) for kind, result, place, hits in rows}


@pytest.fixture(scope="module")
def cached(elsewhere, tmp_path_factory):
    """A temporary directory with the cache of one run of the script, and what that printed."""
    folder = tmp_path_factory.mktemp("cached")
    return folder, told(start(elsewhere, "int64", TMPDIR=str(folder)))


def test_without_a_place_to_write(elsewhere, cached):
    """If package and home cannot be written to, kernels are cached in a private temporary directory, and used again."""
    folder, first = cached
    again = told(start(elsewhere, "int64", TMPDIR=str(folder)))
    (own,) = folder.glob("delta-variant-*")
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert first["int64"][1].startswith(f"{own}{os.sep}")
    assert [first["int64"][::2], again["int64"][::2]] == [(3.5, 0), (3.5, 1)]


def test_without_any_place(elsewhere, tmp_path):
    """If others can write to that temporary directory, nothing is cached there, and kernels run without a cache."""
    planted = tmp_path / f"delta-variant-{os.geteuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    assert told(start(elsewhere, "int64", TMPDIR=str(tmp_path))) == {"int64": (3.5, "nowhere", 0)}
    assert list(planted.iterdir()) == []


def test_numba_cache_dir(elsewhere, tmp_path):
    """NUMBA_CACHE_DIR sets the directory of the cache."""
    chosen = tmp_path / "chosen"
    environment = {"TMPDIR": str(tmp_path), "NUMBA_CACHE_DIR": str(chosen)}
    assert told(start(elsewhere, "int64", **environment))["int64"][1].startswith(str(chosen))
    assert list(tmp_path.glob("delta-variant-*")) == []


def test_an_archive(elsewhere, tmp_path):
    """Kernels of an archive, as `--py-files` ships it, are cached in the private temporary directory, or in NUMBA_CACHE_DIR. An
    archive at another path, as the next application has it, finds them there."""
    archives = []
    for name in ("first.zip", "second.whl"):
        archives.append(tmp_path / name)
        with zipfile.ZipFile(archives[-1], "w") as archive:
            archive.writestr("__main__.py", KERNEL)
            for source in (elsewhere / "delta_variant").rglob("*.py"):
                archive.write(source, source.relative_to(elsewhere))
    first, second = (told(start(archive, "int64", TMPDIR=str(tmp_path))) for archive in archives)
    (own,) = tmp_path.glob("delta-variant-*")
    assert [first["int64"][::2], second["int64"][::2]] == [(3.5, 0), (3.5, 1)]
    assert first["int64"][1] == second["int64"][1] == str(own / "delta_variant")
    chosen = {"TMPDIR": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "chosen")}
    assert told(start(archives[0], "int64", **chosen))["int64"][1] == str(tmp_path / "chosen" / "delta_variant")


def test_processes_at_once(elsewhere, tmp_path):
    """Processes that compile one kernel for several types at once all compute the right results, and all types are cached."""
    kinds = share(("int64", "float64", "float32", "int8"), 2)
    orders = [kinds[i:] + kinds[:i] for i in range(len(kinds))]
    running = [start(elsewhere, *order, TMPDIR=str(tmp_path)) for order in orders]
    for process in running:
        assert {kind: result for kind, (result, *_) in told(process).items()} == dict.fromkeys(kinds, 3.5)
    last = told(start(elsewhere, *kinds, TMPDIR=str(tmp_path)))
    assert [last[kind][::2] for kind in kinds] == [(3.5, hits) for hits, _ in enumerate(kinds, 1)]


def test_loading_is_not_compiling(tmp_path):
    """A process that finds its kernels in the cache does not load what Numba compiles functions with."""
    script = tmp_path / "kernel.py"
    script.write_text(f"{KERNEL}    print(kind, 0, 'numba.np.npyimpl' in sys.modules, 0)\n")
    assert [told(start(script, "int64"))["int64"][1] for _ in range(2)] == ["True", "False"]


def test_interrupted_and_damaged(elsewhere, cached, tmp_path):
    """A kernel whose cache file is truncated is compiled and cached again."""
    folder = shutil.copytree(cached[0], tmp_path / "damaged")
    (file,) = folder.rglob("*.nbc")
    file.write_bytes(file.read_bytes()[:100])
    assert told(start(elsewhere, "int64", TMPDIR=str(folder)))["int64"][::2] == (3.5, 0)
    assert told(start(elsewhere, "int64", TMPDIR=str(folder)))["int64"][::2] == (3.5, 1)


def test_changed_helper(elsewhere, tmp_path):
    """A kernel is compiled again after a change of a module that one of its helpers' modules imports, and only then."""
    shutil.copytree(elsewhere / "delta_variant", tmp_path / "delta_variant")
    (tmp_path / "kernel.py").write_text(f"from delta_variant.kernels.validate import MAX_DEPTH\n{KERNEL}")
    imported, other = (tmp_path / "delta_variant" / "kernels" / f"{name}.py" for name in ("memory", "json"))
    hits = [told(start(tmp_path, "int64", TMPDIR=str(tmp_path)))["int64"][2] for _ in range(2)]
    for changed in (other, imported):
        changed.write_text(f"{changed.read_text()}\n_CHANGED = 1\n")
        hits.append(told(start(tmp_path, "int64", TMPDIR=str(tmp_path)))["int64"][2])
    assert hits == [0, 1, 1, 0]


def test_whose_directory_it_is(monkeypatch, tmp_path):
    """The temporary directory is not used if it is a link or a file, or if another user owns it, can access or rename it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = tmp_path / f"delta-variant-{os.geteuid()}"
    assert own_directory() == own
    own.chmod(0o750)
    assert own_directory() is None
    own.rmdir()
    own.symlink_to(tmp_path / "target", target_is_directory=True)
    (tmp_path / "target").mkdir(mode=0o700)
    assert own_directory() is None
    own.unlink()
    own.touch()
    assert own_directory() is None
    own.unlink()
    tmp_path.chmod(0o777)
    assert own_directory() is None
    tmp_path.chmod(0o1777)
    assert own_directory() == own
    if os.geteuid() == 0:
        os.chown(own, 1, 1)
        assert own_directory() is None


def copied(array):
    """The array in memory of its own, which can be written to."""
    return pa.concat_arrays([array, array[:0]])


def received(array):
    """The array as a stream in Arrow's IPC format delivers it. Its memory is that of Python's bytes, which are read-only."""
    batch = pa.RecordBatch.from_arrays([array], ["v"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue().to_pybytes()).read_next_batch().column(0)


def test_read_only_memory(tmp_path):
    """No kernel is compiled once more for arrays whose memory is read-only, although Numba has another type for them."""
    texts = pa.array(
        [
            json.dumps({"id": n, "s": f"x{n}", "o": {"a": n / 4, "l": [1, "x", None]}, "w": n if n % 3 else "é"})
            for n in range(99)
        ]
    )
    schema = delta_variant.schema.parse("id bigint, s string, o struct<a double, l array<bigint>>, w bigint")

    def work(of):
        variants = of(binary.parse_json(of(texts)))
        tasks.run(tasks.plan(tmp_path, {("v",)}), [pa.RecordBatch.from_arrays([variants], ["v"])])
        return shredding.unshred(of(shredding.shred(variants, schema)))

    assert all(buffer.is_mutable for buffer in copied(texts).buffers() if buffer)
    assert not any(buffer.is_mutable for buffer in received(texts).buffers() if buffer)
    expected, forms = work(copied), compiler.counts()
    assert work(received).equals(expected)
    assert compiler.counts() == forms

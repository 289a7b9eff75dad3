"""Compiled kernels on disk: one file for each signature of each kernel.

In: a kernel that `numba.njit` made. Out: the same kernel with a cache. Numba chooses the directory: `NUMBA_CACHE_DIR`, the
`__pycache__` beside the source, or the user's cache directory. If it can write to none of them (no home, site-packages that
belong to another user), this module creates a directory for the user in the temporary directory. If that fails too, there is
no cache, and each process compiles for itself.

A cached file is a pickle with machine code, so the directory in the temporary directory has to be the user's own
(`directories`).

If the package is in an archive (Spark's `--py-files`), there is no directory beside the source, and each application has the
archive at another path. The directory is then `NUMBA_CACHE_DIR` or the one in the temporary directory, whatever the archive's
path.

Numba's own cache numbers the files of a kernel and writes an index and a file in two steps. When two processes compile one
kernel for two types at the same time, or a process is killed between the steps, the index can name the code for the other type,
and Numba runs it (observed: an int64 array read as float64). Here a file is named by a digest of everything that its code
depends on, so there is no index. Processes that write at the same time write the same file, and each renames a complete one.

Invariant: a cache that cannot be read or written costs time and raises nothing.
"""

# mypy: disable-error-code="no-untyped-call,misc"

from __future__ import annotations

import hashlib
import inspect
import linecache
import os
import pickle
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from numba.core.ccallback import CFunc
from numba.core.runtime import rtsys
from numba.core.sigutils import normalize_signature

from delta_variant.directories import is_own, own_directory

_KERNELS: list[Any] = []
"""The kernels that have been imported."""

_CALLBACKS: list[Any] = []
"""The callbacks that have been compiled: their code is kept as long as they are."""


def cached(kernel: Any) -> Any:
    """Adds a cache to a kernel, the dispatcher that `numba.njit` returns; returns the same kernel."""
    kernel._cache = _cache(kernel.py_func) or kernel._cache  # noqa: SLF001  # what Dispatcher.enable_caching does
    _KERNELS.append(kernel)
    return kernel


def callback(function: Any, signature: Any) -> int:
    """Compiles a function that C calls, and caches it. Returns its address, which is good for the life of the process."""
    kernel: Any = CFunc(function, normalize_signature(signature), locals={}, options={"nopython": True, "_nrt": False})
    kernel._cache = _cache(function) or kernel._cache  # noqa: SLF001  # what CFunc.enable_caching does
    kernel.compile()
    _CALLBACKS.append(kernel)
    return int(kernel.address)


def digest(*modules: str) -> str:
    """A digest of the sources of modules of this package, named as in `kernels/memory`; they may be in an archive."""
    found, loader = hashlib.blake2b(digest_size=4), globals()["__loader__"]
    package = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120  # pathlib drops the ./ of an archive, which its loader wants
    for module in modules:
        found.update(loader.get_data(os.path.join(package, f"{module}.py")))  # noqa: PTH118
    return found.hexdigest()


def counts() -> tuple[int, int]:
    """How many signatures of kernels this process has compiled, and how many it has loaded from the cache."""
    stats = [kernel.stats for kernel in _KERNELS]
    return sum(sum(of.cache_misses.values()) for of in stats), sum(sum(of.cache_hits.values()) for of in stats)


def place() -> str | None:
    """The directory of the compiled kernels; None if no directory can be written to. Needs a kernel that was imported."""
    found: str | None = getattr(_KERNELS[0]._cache, "cache_path", None)  # noqa: SLF001  # as in `cached`
    return found


def _cache(function: Any) -> _Cache | None:
    with suppress(RuntimeError):  # Numba found no directory that it can write to
        return _Cache(function)
    directory = own_directory()
    if directory is None:
        return None
    before, config.CACHE_DIR = config.CACHE_DIR, str(directory)
    try:
        return _Cache(function, directory)
    except RuntimeError:
        return None
    finally:
        config.CACHE_DIR = before


class _InArchive:
    """Numba's locator for a function whose source is in an archive: the directory of its cache, and a digest of its source."""

    def __init__(self, function: Any, file: str) -> None:
        source = "".join(linecache.getlines(file, function.__globals__))
        self._stamp = hashlib.sha256(source.encode()).digest()
        self._line = function.__code__.co_firstlineno
        self._py_file = file  # in warnings
        self._path = Path(config.CACHE_DIR, "delta_variant")

    def ensure_cache_path(self) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=self._path).close()

    def get_cache_path(self) -> str:
        return str(self._path)

    def get_source_stamp(self) -> bytes:
        return self._stamp

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, function: Any, file: str) -> _InArchive | None:
        if not config.CACHE_DIR:
            return None
        locator = cls(function, file)
        try:
            locator.ensure_cache_path()
        except OSError:
            return None
        return locator


class _Impl(CompileResultCacheImpl):
    def __init__(self, function: Any) -> None:
        if not Path(inspect.getfile(function)).exists():
            self._locator_classes = [_InArchive]
        super().__init__(function)


class _Cache(FunctionCache):
    _impl_class = _Impl

    def __init__(self, function: Any, own: Path | None = None) -> None:
        super().__init__(function)
        self._own = own
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file: Any = _Files(self.cache_path, self._impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        if self._own is not None and not is_own(self._own):
            return None
        # Numba's method first loads what functions are compiled with, which takes 0.15 s. A compilation loads it by itself.
        rtsys.initialize(target_context)
        with suppress(OSError, EOFError, pickle.UnpicklingError):
            return self._load_overload(sig, target_context)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        if self._own is not None and not is_own(self._own):
            return
        with suppress(OSError):
            super().save_overload(sig, data)


class _Files(IndexDataCacheFile):
    """The files of a kernel. A key is the signature, the processor, and digests of the kernel's byte code and closure."""

    def load(self, key: Any) -> Any:
        return self._load_data(self._name(key))

    def save(self, key: Any, data: Any) -> None:
        self._save_data(self._name(key), data)

    def _name(self, key: Any) -> str:
        digest = hashlib.blake2b(repr((numba.__version__, self._source_stamp, key)).encode(), digest_size=16)
        return f"{Path(self._index_path).stem}-{digest.hexdigest()}.nbc"

"""How kernels are compiled and cached: all that depends on Numba's internals.

In: Python functions. Out: kernels, which Python calls; helpers, which are compiled into kernels; and instructions, for what
Python cannot say to LLVM. No other module of this package imports Numba or LLVM.

Numba documents `njit` and `intrinsic`, and little of the rest. So the package allows only versions that were tried: Numba 0.61
to 0.68, with the llvmlite that each of them asks for. `make pins` runs the tests with the oldest and the newest. What is used,
why, and what happens if it changes:

* Options of `njit`: `_nrt=False` makes kernels without reference counts. `no_cpython_wrapper` and `no_cfunc_wrapper` spare the
  code by which Python and C call a function. `forceinline` inlines helpers. An unknown option is an error at import; an option
  without effect makes kernels slower.
* `CompilerBase`, `FunctionPass` and `state.calltypes` make array indices unsigned. A change is an error when a kernel is
  compiled, or makes kernels slower.
* `make_array`, `populate_array` and the builders of LLVM's instructions make unaligned loads and stores, copies, views and
  vectors. A change is an error when a kernel is compiled.
* `FunctionCache`, `CompileResultCacheImpl`, `IndexDataCacheFile` and `Dispatcher._cache` store a file for each signature of a
  kernel. A change is an error at import, or each process compiles its kernels anew.
* `_load_overload` and `rtsys` load a cached kernel without Numba's compiler. Without them each process takes 0.15 s longer.
* `CFunc` compiles a callback for C, and is cached as kernels are. A change is an error in `shred`.

The cache. Numba chooses the directory: `NUMBA_CACHE_DIR`, the `__pycache__` beside the source, or the user's cache directory.
If it can write to none of them (no home, site-packages of another user), this module creates a directory for the user in the
temporary directory. If that fails too, there is no cache, and each process compiles for itself. A cached file is a pickle with
machine code, so the directory in the temporary directory has to be the user's own (`directories`). If the package is in an
archive (Spark's `--py-files`), there is no directory beside the source, and each application has the archive at another path.
The directory is then `NUMBA_CACHE_DIR` or the one in the temporary directory, whatever the archive's path.

Numba's own cache numbers the files of a kernel and writes an index and a file in two steps. When two processes compile one
kernel for two types at the same time, or a process is killed between the steps, the index can name the code for the other type,
and Numba runs it (observed: an int64 array read as float64). Here a file is named by a digest of everything that its code
depends on, so there is no index. Processes that write at the same time write the same file, and each renames a complete one.

Invariant: a cache that cannot be read or written costs time and raises nothing.
"""

# ruff: noqa: ANN001, ANN201, ANN202, ARG001, SLF001  # Numba infers the types, reads signatures of intrinsics, and hides names
# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc,attr-defined"

from __future__ import annotations

import hashlib
import inspect
import linecache
import os
import pickle
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numba as nb
from llvmlite import ir
from numba.core import cgutils, config
from numba.core import types as nbt
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from numba.core.ccallback import CFunc
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.ir import Assign, Expr, SetItem
from numba.core.runtime import rtsys
from numba.core.typed_passes import NopythonTypeInference
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from delta_variant.directories import is_own, own_directory

_KERNELS: list[Any] = []
"""The kernels that have been imported."""

_CALLBACKS: list[Any] = []
"""The callbacks that have been compiled: their code is kept as long as they are."""

_BIT, _WORD, _WIDE = ir.IntType(1), ir.IntType(64), ir.IntType(128)
_WORDS = nbt.CPointer(nbt.int64)
_UNSIGNED = {nbt.intp: nbt.uintp, nbt.UniTuple(nbt.intp, 2): nbt.UniTuple(nbt.uintp, 2)}


@register_pass(mutates_CFG=False, analysis_only=False)
class _UnsignedIndices(FunctionPass):
    """Makes every index of an array unsigned. Numba tests each signed one, since it may count from the end of the array."""

    _name = "unsigned_indices"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state):
        for block in state.func_ir.blocks.values():
            for statement in block.body:
                node = statement.value if isinstance(statement, Assign) else statement
                if isinstance(node, SetItem) or (isinstance(node, Expr) and node.op == "getitem"):
                    signature = state.calltypes.pop(node)
                    array, index, *value = signature.args
                    if isinstance(array, nbt.Array) and index in _UNSIGNED:
                        signature = signature.replace(args=(array, _UNSIGNED[index], *value))
                    state.calltypes[node] = signature
        return True


class _Compiler(CompilerBase):
    """Numba's compiler, with array indices that are never negative: those that are lead outside of the array."""

    def define_pipelines(self):
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_UnsignedIndices, NopythonTypeInference)
        passes.finalize()
        return [passes]


def jit(function: Any, *, allocates: bool = False) -> Any:
    """Compiles a kernel, a function that Python calls, and caches it on disk. allocates: whether it makes arrays.

    A kernel frees Python's lock while it runs.
    """
    kernel = nb.njit(nogil=True, _nrt=allocates, no_cfunc_wrapper=True, pipeline_class=_Compiler)(_named(function))
    _KERNELS.append(_with_cache(kernel, function))
    return kernel


allocating = partial(jit, allocates=True)
"""`jit` for kernels that make arrays. Numba counts the references to arrays in them, atomically, at many uses; in other kernels
it does not."""

_inner = partial(nb.njit, nogil=True, _nrt=False, pipeline_class=_Compiler, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""Compiles a function that kernels call, without the code by which Python and C would call it: a fifth of the time."""

helper = _inner(forceinline=True)
"""Compiles a function that kernels call: it is inlined into each. With a cache of its own it would be linked, not inlined."""

called = _inner(forceinline=False)
"""Compiles a helper for rare cases or long work: it is called, and takes no registers from the main loop of a kernel.

Without forceinline=False it would have that flag from the helper that calls it. LLVM still inlines what it thinks small: see
`apart`."""


def callback(function: Any) -> int:
    """Compiles a function that C calls with a pointer to words, and caches it. Returns its address in this process."""
    kernel: Any = CFunc(_named(function), ((_WORDS,), nbt.void), locals={}, options={"nopython": True, "_nrt": False})
    _CALLBACKS.append(_with_cache(kernel, function))
    kernel.compile()
    return int(kernel.address)


def counts() -> tuple[int, int]:
    """How many signatures of kernels this process has compiled, and how many it has loaded from the cache."""
    stats = [kernel.stats for kernel in _KERNELS]
    return sum(sum(of.cache_misses.values()) for of in stats), sum(sum(of.cache_hits.values()) for of in stats)


def cache_directory() -> str | None:
    """The directory of the compiled kernels; None if no directory can be written to. Needs a kernel that was imported."""
    found: str | None = getattr(_KERNELS[0]._cache, "cache_path", None)
    return found


# A kernel that is cached: its name says what helpers are in it, and its cache names a file for each signature.


def _named(function: Any) -> Any:
    """The function with a digest of its helpers in its name, which is part of the cached file's name.

    Numba's cache notices changes of the kernel's own file only. Helpers are compiled into the kernel but are in other files.
    """
    own = function.__globals__
    function.__qualname__ += f"-{_digest(own['__loader__'], own['__file__'])}"
    return function


@cache
def _digest(loader: Any, file: str) -> str:
    """A digest of a module and of all modules whose helpers and constants it may use: they are in `kernels`, or `types`."""
    sources = {"": loader.get_data(file)}
    _add_imports("", sources)
    return hashlib.blake2b(b"".join(sources[name] for name in sorted(sources)), digest_size=4).hexdigest()


_IMPORT = re.compile(rb"^from delta_variant(?:\.(kernels\.\w+) import| import (types)\b)", re.MULTILINE)


def _add_imports(module: str, sources: dict[str, bytes]) -> None:
    """Adds the sources of what a module imports, and of what these modules import."""
    for found in _IMPORT.finditer(sources[module]):
        name = (found[1] or found[2]).decode().replace(".", os.sep)
        if name not in sources:
            sources[name] = _source(name)
            _add_imports(name, sources)


@cache
def _source(name: str) -> bytes:
    """The source of a module of this package, which may be in an archive."""
    package = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120  # pathlib drops the ./ of an archive, which its loader wants
    source: bytes = globals()["__loader__"].get_data(os.path.join(package, f"{name}.py"))  # noqa: PTH118
    return source


def _with_cache(kernel: Any, function: Any) -> Any:
    """The kernel with a cache, as `enable_caching` of Dispatcher and CFunc do it."""
    kernel._cache = _cache(function) or kernel._cache
    return kernel


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
        digest = hashlib.blake2b(repr((nb.__version__, self._source_stamp, key)).encode(), digest_size=16)
        return f"{Path(self._index_path).stem}-{digest.hexdigest()}.nbc"


# Instructions on memory. An item of an array is named by two arguments, the array and its index.


def _item(context, builder, signature, args, number, bits=None):
    """A pointer to the item args[number + 1] of the array args[number]; to an integer of so many bits there."""
    array = context.make_array(signature.args[number])(context, builder, args[number])
    pointer = builder.gep(array.data, [args[number + 1]])
    return pointer if bits is None else builder.bitcast(pointer, ir.IntType(bits).as_pointer())


def _load(kind: Any, bits: int) -> Any:
    """An unaligned little-endian load; NumPy indexing cannot express one without a copy."""

    @intrinsic
    def load(_typingctx, data, at):
        def codegen(context, builder, signature, args):
            value = builder.load(_item(context, builder, signature, args, 0, bits))
            value.align = 1
            return value

        return kind(data, nbt.int64), codegen

    return load


def _store(kind: Any, bits: int) -> Any:
    """An unaligned little-endian store."""

    @intrinsic
    def store(_typingctx, out, to, word):
        def codegen(context, builder, signature, args):
            builder.store(args[2], _item(context, builder, signature, args, 0, bits), align=1)
            return context.get_dummy_value()

        return nbt.void(out, nbt.int64, kind), codegen

    return store


u16, u32, u64 = _load(nbt.uint16, 16), _load(nbt.uint32, 32), _load(nbt.uint64, 64)
store16, store32, store64 = _store(nbt.uint16, 16), _store(nbt.uint32, 32), _store(nbt.uint64, 64)


@intrinsic
def copy(_typingctx, out, to, data, at, size):
    """memcpy(out + to, data + at, size)."""

    def codegen(context, builder, signature, args):
        target, source = (_item(context, builder, signature, args, number) for number in (0, 2))
        cgutils.raw_memcpy(builder, target, source, args[4], 1, align=1)
        return context.get_dummy_value()

    return nbt.void(out, nbt.int64, data, nbt.int64, nbt.int64), codegen


@intrinsic
def move(_typingctx, out, to, at, size):
    """memmove(out + to, out + at, size): the two may overlap."""

    def codegen(context, builder, signature, args):
        target, source = (_item(context, builder, signature, [args[0], args[number]], 0) for number in (1, 2))
        cgutils.raw_memmove(builder, target, source, args[3], 1, align=1)
        return context.get_dummy_value()

    return nbt.void(out, nbt.int64, nbt.int64, nbt.int64), codegen


@intrinsic
def address(_typingctx, array):
    """Where the memory of an array starts."""

    def codegen(context, builder, signature, args):
        return builder.ptrtoint(context.make_array(signature.args[0])(context, builder, args[0]).data, ir.IntType(64))

    return nbt.int64(array), codegen


@intrinsic
def view(_typingctx, address, count, kind):
    """`count` items of a type in the memory at an address."""
    result = nbt.Array(kind.dtype, 1, "C")

    def codegen(context, builder, signature, args):
        item = context.get_data_type(kind.dtype)
        width = context.get_constant(nbt.intp, context.get_abi_sizeof(item))
        part = context.make_array(result)(context, builder)
        populate_array(part, builder.inttoptr(args[0], item.as_pointer()), [args[1]], [width], width, None)
        return part._getvalue()

    return result(nbt.int64, nbt.int64, kind), codegen


@intrinsic
def span(_typingctx, array, at, count, kind):
    """`count` items of a type in the memory of a contiguous array, from its item `at` on. A slice takes longer to compile."""
    result = nbt.Array(kind.dtype, 1, "C", readonly=not array.mutable)

    def codegen(context, builder, signature, args):
        item = context.get_data_type(kind.dtype)
        width = context.get_constant(nbt.intp, context.get_abi_sizeof(item))
        part = context.make_array(result)(context, builder)
        pointer = builder.bitcast(_item(context, builder, signature, args, 0), item.as_pointer())
        populate_array(part, pointer, [args[2]], [width], width, None)
        return part._getvalue()

    return result(array, nbt.int64, nbt.int64, kind), codegen


@intrinsic
def pointer(_typingctx, address):
    """The words at an address."""

    def codegen(_context, builder, _signature, args):
        return builder.inttoptr(args[0], _WORD.as_pointer())

    return _WORDS(nbt.int64), codegen


@intrinsic
def call(_typingctx, function, argument):
    """Calls a function of C that takes a pointer and returns nothing, by its address."""

    def codegen(context, builder, _signature, args):
        kind = ir.FunctionType(ir.VoidType(), [args[1].type])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1]])
        return context.get_dummy_value()

    return nbt.void(nbt.int64, argument), codegen


# Instructions on numbers, and what LLVM is told about the code.


def _unary(kind: Any, result: Any, emit: Callable[[Any, Any], Any]) -> Any:
    @intrinsic
    def instruction(_typingctx, word):
        return result(kind), lambda _context, builder, _signature, args: emit(builder, args[0])

    return instruction


trailing_zeros = _unary(nbt.uint64, nbt.int64, lambda builder, bits: builder.cttz(bits, ir.Constant(_BIT, 1)))
"""The number of zero bits below the lowest bit that is set; the argument is not 0."""

leading_zeros = _unary(nbt.uint64, nbt.int64, lambda builder, bits: builder.ctlz(bits, ir.Constant(_BIT, 1)))
"""The number of zero bits above the highest bit that is set; the argument is not 0."""

population = _unary(nbt.uint64, nbt.uint64, lambda builder, bits: builder.ctpop(bits))
"""How many bits are set."""

reversed_bytes = _unary(nbt.uint64, nbt.uint64, lambda builder, word: builder.bswap(word))
"""The word with its bytes in the opposite order."""

opaque = _unary(nbt.int64, nbt.int64, lambda builder, n: builder.asm(ir.FunctionType(_WORD, [_WORD]), "", "=r,0", [n], False))
"""The same number, but LLVM does not know that.

A loop that counts with it is left as it is. LLVM would write it out for eight rounds and more at a time, which costs twenty
instructions before the first round, and most containers have few fields."""


def _expected(builder, condition):
    expect = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_BIT, [_BIT, _BIT]), "llvm.expect.i1")
    return builder.call(expect, [condition, ir.Constant(_BIT, 1)])


likely = _unary(nbt.boolean, nbt.boolean, _expected)
"""The same condition, but LLVM knows that it mostly holds: what is done otherwise gets no registers of the main loop."""


@intrinsic
def high_product(_typingctx, a, b):
    """The upper 64 bits of the product of two unsigned numbers."""

    def codegen(_context, builder, _signature, args):
        product = builder.mul(builder.zext(args[0], _WIDE), builder.zext(args[1], _WIDE))
        return builder.trunc(builder.lshr(product, ir.Constant(_WIDE, 64)), _WORD)

    return nbt.uint64(nbt.uint64, nbt.uint64), codegen


@intrinsic
def apart(_typingctx):
    """The function that this stands in, one of `called`, is not inlined even if LLVM thinks it small."""

    def codegen(context, builder, _signature, _args):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return nbt.void(), codegen


# Many bytes at once.

LANES = 32
"""The bytes of one scan."""
_VECTOR = ir.VectorType(ir.IntType(8), LANES)


def scanner(ends_run: Callable[[Lanes], Lanes]) -> Any:
    """A scan of LANES bytes: one bit for each of which `ends_run` is true, and bit LANES. The lowest bit is the first byte."""

    @intrinsic
    def scan(_typingctx, data, at):
        def codegen(context, builder, signature, args):
            vector = builder.load(builder.bitcast(_item(context, builder, signature, args, 0), _VECTOR.as_pointer()))
            vector.align = 1
            bits = builder.bitcast(ends_run(Lanes(builder, vector)).vector, ir.IntType(LANES))
            return builder.or_(builder.zext(bits, _WORD), ir.Constant(_WORD, 1 << LANES))

        return nbt.uint64(data, nbt.int64), codegen

    return scan


class Lanes:
    """Unsigned bytes, or the results of comparing them: an instruction works on all at once."""

    def __init__(self, builder: Any, vector: Any) -> None:
        self.builder, self.vector = builder, vector

    def any_of(self, characters: str) -> Lanes:
        """Whether a byte is one of these characters."""
        first, *others = (self._compared("==", ord(one)) for one in characters)
        for other in others:
            first |= other
        return first

    def __lt__(self, byte: int) -> Lanes:
        return self._compared("<", byte)

    def __gt__(self, byte: int) -> Lanes:
        return self._compared(">", byte)

    def __le__(self, byte: int) -> Lanes:
        return self._compared("<=", byte)

    def __sub__(self, byte: int) -> Lanes:
        return Lanes(self.builder, self.builder.sub(self.vector, self._all(byte)))

    def __or__(self, other: Lanes | int) -> Lanes:
        return Lanes(self.builder, self.builder.or_(self.vector, self._all(other) if isinstance(other, int) else other.vector))

    def __invert__(self) -> Lanes:
        return Lanes(self.builder, self.builder.not_(self.vector))

    def _compared(self, sign: str, byte: int) -> Lanes:
        return Lanes(self.builder, self.builder.icmp_unsigned(sign, self.vector, self._all(byte)))

    @staticmethod
    def _all(byte: int) -> Any:
        return ir.Constant(_VECTOR, [byte] * LANES)

"""Arrow's C data interface: arrays described by structs, which pyarrow takes over as they are, with one call for a whole tree.

A struct has WORDS words of 8 bytes. The memory that the structs of a tree point to, and their own, belongs to a holder: an
array of pyarrow's, exported to a struct too. Arrow calls the callback in the thread that drops the last reference, at any time,
also when Python ends. It is machine code, and hands on to what Arrow itself has for the holder.

Source: Arrow, "The Arrow C data interface".
"""

# ruff: noqa: ANN001, ANN201, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache

from llvmlite import ir
from numba.core import types as nbt
from numba.extending import intrinsic

from delta_variant.kernels.cache import callback

LENGTH, NULLS, OFFSET, BUFFER_COUNT, CHILD_COUNT, BUFFERS, CHILDREN, DICTIONARY, RELEASE, PRIVATE = range(10)
"""The words of a struct."""
WORDS = 10


_WORD_POINTER = nbt.CPointer(nbt.int64)  # type: ignore[attr-defined]


@intrinsic
def pointer(_typingctx, address):
    """The words at an address."""

    def codegen(_context, builder, _signature, args):
        return builder.inttoptr(args[0], ir.IntType(64).as_pointer())

    return _WORD_POINTER(address), codegen


@intrinsic
def call(_typingctx, function, argument):
    """Calls a function of C, by its address."""

    def codegen(context, builder, _signature, args):
        kind = ir.FunctionType(ir.VoidType(), [args[1].type])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1]])
        return context.get_dummy_value()

    return nbt.void(function, argument), codegen


def _release(struct):
    """Lets go of the holder whose struct is at struct[PRIVATE]; 0: none."""
    if struct[PRIVATE] == 0:
        struct[RELEASE] = 0
        return
    holder = pointer(struct[PRIVATE])
    for word in range(WORDS):  # moves the holder here: its own struct is in the memory that it lets go of
        struct[word] = holder[word]
    call(struct[RELEASE], struct)


@cache
def release_address() -> int:
    """The address of the callback."""
    return callback(_release, nbt.void(_WORD_POINTER))

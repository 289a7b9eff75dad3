"""What `parse` needs beside `memory`: many bytes of text in one look, moves, and the arithmetic of wide numbers.

A scan loads 32 bytes and returns one bit for each byte that ends a run; the lowest bit is the first byte. LLVM turns it into
the vector instructions of the processor. Bit 32 is always set, so that the number of trailing zeros is the length of the run,
at most 32. Loads reach up to 31 bytes beyond a text, so a buffer of texts ends with PADDING spare bytes.
"""

# ruff: noqa: ANN001, ANN201, ANN202, ARG001  # Numba infers the types, and reads signatures of intrinsics
# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc,attr-defined"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.core import types as nbt
from numba.extending import intrinsic

PADDING = 64

_LANES = 32
_VECTOR = ir.VectorType(ir.IntType(8), _LANES)


def _all(byte: int) -> Any:
    return ir.Constant(_VECTOR, [byte] * _LANES)


def scanner(ends_run: Any) -> Any:
    """A scan for bytes: ends_run(builder, bytes) says for each of 32 bytes whether it ends a run."""

    @intrinsic
    def scan(_typingctx, data, at):
        def codegen(context, builder, signature, args):
            array = context.make_array(signature.args[0])(context, builder, args[0])
            pointer = builder.bitcast(builder.gep(array.data, [args[1]]), _VECTOR.as_pointer())
            vector = builder.load(pointer)
            vector.align = 1
            bits = builder.bitcast(ends_run(builder, vector), ir.IntType(_LANES))
            return builder.or_(builder.zext(bits, ir.IntType(64)), ir.Constant(ir.IntType(64), 1 << _LANES))

        return nbt.uint64(data, nbt.int64), codegen

    return scan


def _special(builder: Any, vector: Any) -> Any:
    quote = builder.icmp_unsigned("==", vector, _all(ord('"')))
    backslash = builder.icmp_unsigned("==", vector, _all(ord("\\")))
    return builder.or_(builder.or_(quote, backslash), builder.icmp_unsigned("<", vector, _all(0x20)))


def _structural(builder: Any, vector: Any) -> Any:
    folded = builder.or_(vector, _all(0x20))  # [ and ] become { and }
    braces = [builder.icmp_unsigned("==", folded, _all(ord(brace))) for brace in "{}"]
    quote = builder.icmp_unsigned("==", vector, _all(ord('"')))
    ends = builder.or_(builder.or_(braces[0], braces[1]), quote)
    return builder.or_(ends, builder.icmp_unsigned("<", vector, _all(0x20)))


def _blank(builder: Any, vector: Any) -> Any:
    tests = [builder.icmp_unsigned("!=", vector, _all(ord(blank))) for blank in " \n\r\t"]
    return builder.and_(builder.and_(tests[0], tests[1]), builder.and_(tests[2], tests[3]))


string_end = scanner(_special)  # a quote, a backslash or a control character
ends_structure = scanner(_structural)  # a quote, a brace, a bracket or a control character
not_ascii = scanner(lambda builder, vector: builder.icmp_unsigned(">", vector, _all(0x7F)))
not_blank = scanner(_blank)
is_newline = scanner(lambda builder, vector: builder.icmp_unsigned("==", vector, _all(ord("\n"))))
not_digit = scanner(lambda builder, vector: builder.icmp_unsigned(">", builder.sub(vector, _all(ord("0"))), _all(9)))


def bytes_between(low: int, high: int) -> Any:
    """A scan for bytes from `low` to `high`."""
    return scanner(lambda builder, vector: builder.icmp_unsigned("<=", builder.sub(vector, _all(low)), _all(high - low)))


@intrinsic
def trailing_zeros(_typingctx, bits):
    """The number of zero bits below the lowest bit that is set; `bits` is not 0."""

    def codegen(_context, builder, _signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return nbt.int64(nbt.uint64), codegen


@intrinsic
def opaque(_typingctx, number):
    """The same number, but LLVM does not know that.

    A loop that counts with it is left as it is. LLVM would write it out for eight rounds and more at a time, which costs twenty
    instructions before the first round, and most containers have few fields.
    """

    def codegen(_context, builder, _signature, args):
        word = ir.IntType(64)
        return builder.asm(ir.FunctionType(word, [word]), "", "=r,0", [args[0]], False)

    return nbt.int64(nbt.int64), codegen


@intrinsic
def apart(_typingctx):
    """The function that this stands in, one of `memory.called`, is not inlined even if LLVM thinks it small."""

    def codegen(context, builder, _signature, _args):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return nbt.void(), codegen


@intrinsic
def likely(_typingctx, condition):
    """The same condition, but LLVM knows that it mostly holds: what is done otherwise gets no registers of the main loop."""

    def codegen(_context, builder, _signature, args):
        bit = ir.IntType(1)
        expect = cgutils.get_or_insert_function(builder.module, ir.FunctionType(bit, [bit, bit]), "llvm.expect.i1")
        return builder.call(expect, [args[0], ir.Constant(bit, 1)])

    return nbt.boolean(nbt.boolean), codegen


@intrinsic
def leading_zeros(_typingctx, bits):
    """The number of zero bits above the highest bit that is set; `bits` is not 0."""

    def codegen(_context, builder, _signature, args):
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 1))

    return nbt.int64(nbt.uint64), codegen


@intrinsic
def high_product(_typingctx, a, b):
    """The upper 64 bits of the product of two unsigned numbers."""

    def codegen(_context, builder, _signature, args):
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return nbt.uint64(nbt.uint64, nbt.uint64), codegen


@intrinsic
def move(_typingctx, out, to, at, size):
    """memmove(out + to, out + at, size): the two may overlap."""

    def codegen(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        target, source = builder.gep(array.data, [args[1]]), builder.gep(array.data, [args[2]])
        cgutils.raw_memmove(builder, target, source, args[3], 1, align=1)
        return context.get_dummy_value()

    return nbt.void(out, nbt.int64, nbt.int64, nbt.int64), codegen

"""Arrow's C data interface: arrays described by structs, which pyarrow takes over as they are, with one call for a whole tree.

A struct has WORDS words of 8 bytes. One pyarrow array, the holder, owns the memory of a tree: its structs and what they point
to. The holder is exported to a struct too. Arrow calls the release callback in the thread that drops the last reference, at any
time, also when Python ends. The callback is therefore machine code. It calls Arrow's own callback for the holder.

Source: Arrow, "The Arrow C data interface".
"""

# ruff: noqa: ANN001, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from functools import cache

from delta_variant.kernels.compiler import call, callback, pointer

LENGTH, NULLS, OFFSET, BUFFER_COUNT, CHILD_COUNT, BUFFERS, CHILDREN, DICTIONARY, RELEASE, PRIVATE = range(10)
"""The words of a struct."""
WORDS = 10


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
    return callback(_release)

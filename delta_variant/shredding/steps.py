"""The steps that shred a level of a shredding schema, as the kernels read them.

A level is a node with all nodes below it that have a slot for each of its slots: all but the elements of lists. Each list in it
has a level of its own for its elements. Nodes come before their children.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from delta_variant import types as t
from delta_variant.buffers import Bytes, Int32s, Int64s
from delta_variant.kernels import levels as k
from delta_variant.kernels import structs
from delta_variant.shredding.plan import Node


@dataclass(frozen=True, eq=False)
class Step:
    """The action at one node."""

    node: Node
    action: int
    row: int  # that has its positions
    out: int  # before its values or offsets in the room of the level: so many eighths of the slots
    spare: int  # and so many times 64 bytes
    place: int  # where its structs are
    children: tuple[Step, ...]
    height: int  # how many nodes are above each other, from it down
    elements: Level | None  # the level of a list's elements


@dataclass(frozen=True, eq=False)
class Level:
    """A level, and its steps as arrays: see `kernels.levels`."""

    order: tuple[Step, ...]
    steps: Int64s
    places: Int64s
    child_of_name: Int32s
    largest: npt.NDArray[np.uint64]
    rows: int  # how many rows of positions there are
    eighths: int
    spare: int

    @property
    def tables(self) -> tuple[Int64s, Int32s, npt.NDArray[np.uint64]]:
        """The arguments of `kernels.levels.split`."""
        return self.steps, self.child_of_name, self.largest

    def room(self, slots: int) -> int:
        """The bytes that zeros, validity, values and offsets take."""
        return _eighth(slots) * self.eighths + 64 * self.spare

    def offsets(self, step: Step, room: Bytes, slots: int) -> Int32s:
        """The offsets of texts or lists."""
        at = _eighth(slots) * step.out + 64 * step.spare
        offsets: Int32s = room[at : at + 4 * slots + 4].view(np.int32)
        return offsets


def _eighth(slots: int) -> int:
    """An eighth of the slots, which are rounded up to a multiple of 64: their bits take so many bytes."""
    return (slots + 63) // 64 * 8


@dataclass(frozen=True, eq=False)
class Tree:
    """The levels of a schema, and the structs that describe its columns; those of a chunk are words + base * pointers."""

    level: Level
    words: Int64s
    pointers: Int64s


@lru_cache(maxsize=64)
def tree(root: Node) -> Tree:
    """The levels below the root of a schema."""
    words = _Structs()
    top = _Builder(root, words).level
    return Tree(top, np.array(words.words, np.int64), np.array(words.pointers, np.int64))


class _Structs:
    """The structs of a tree, with pointers relative to the first one."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.pointers: list[int] = []

    def add(self, action: int, children: int) -> int:
        """Adds the structs of a node: `value`, `typed_value`, and the group of both. Returns their place."""
        place, size = len(self.words), k.TYPED_CHILDREN + children
        self.words += [0] * size
        self.pointers += [0] * size
        columns = 1 if action == k.RESIDUAL else 2
        self._add(place, 3, k.VALUE_BUFFERS, 0, 0)
        self._add(place, _BUFFERS.get(action, 2), k.TYPED_BUFFERS, children, k.TYPED_CHILDREN, structs.WORDS)
        self._add(place, 1, k.GROUP_BUFFERS, columns, k.GROUP_CHILDREN, 2 * structs.WORDS)
        for column in range(columns):
            self.point(place + k.GROUP_CHILDREN + column, place + column * structs.WORDS)
        return place

    def _add(self, place: int, buffers: int, to_buffers: int, children: int, to_children: int, part: int = 0) -> None:
        at = place + part
        self.words[at + structs.BUFFER_COUNT], self.words[at + structs.CHILD_COUNT] = buffers, children
        self.words[at + structs.RELEASE] = structs.release_address()
        self.point(at + structs.BUFFERS, place + to_buffers)
        self.point(at + structs.CHILDREN, place + to_children)

    def point(self, at: int, to: int) -> None:
        """Makes a word a pointer to another."""
        self.words[at], self.pointers[at] = 8 * to, 1


_BUFFERS = {k.OBJECT: 1, k.LIST: 2, k.TEXTS: 3}
"""The buffers of typed_value; 2 if not here."""

_ACTIONS = {
    t.TRUE: k.BOOLEANS,
    **dict.fromkeys((t.INT8, t.INT16, t.INT32, t.INT64), k.INTEGERS),
    **dict.fromkeys((t.DECIMAL4, t.DECIMAL8, t.DECIMAL16), k.DECIMALS),
    **dict.fromkeys((t.STRING, t.BINARY), k.TEXTS),
}
"""The action at a leaf, by its type id; FIXED if not here."""

_EIGHTHS = {k.OBJECT: 0, k.RESIDUAL: 0, k.BOOLEANS: 1, k.LIST: 8 * 4, k.TEXTS: 8 * 4}
"""The bits of a value or an offset; those of its width if not here."""


class _Builder:
    """A level, which is made with the structs of its nodes."""

    def __init__(self, root: Node, words: _Structs) -> None:
        self.structs = words
        self.steps: dict[int, Step] = {}
        self.lines: list[list[int]] = []
        self.names: list[int] = []
        self.largest: list[tuple[int, int]] = []
        self.eighths, self.spare = 8 * 4, 1  # zeros, as many as offsets
        self.rows = 1
        self._add(root, 0)
        order = tuple(self.steps[number] for number in range(len(self.steps)))
        lines, places = np.array(self.lines, np.int64), np.array([step.place for step in order], np.int64)
        names, largest = np.array(self.names, np.int32), np.array(self.largest, np.uint64).reshape(-1, 2)
        self.level = Level(order, lines, places, names, largest, self.rows, self.eighths, self.spare)

    def _add(self, node: Node, row: int) -> Step:
        """Adds a node and those below it."""
        action, line = self._action(node), [0] * (k.NAMES + 1)
        number, place, first = len(self.lines), self.structs.add(action, len(node.children)), self.rows
        self.lines.append(line)
        spare, bits, out = self.spare, self.eighths, self.eighths + (action != k.RESIDUAL)
        line[k.ACTION], line[k.ROW], line[k.BITS], line[k.OUT], line[k.SPARE] = action, row, bits, out, spare
        if node.primitive is not None:
            line[k.KIND], line[k.SIZE] = node.primitive.id, 16 if action == k.DECIMALS else max(0, node.primitive.size)
        self.eighths = out + _EIGHTHS.get(action, 8 * line[k.SIZE])
        self.spare += action in (k.LIST, k.TEXTS, k.INTEGERS)
        elements, children = None, []
        if action == k.OBJECT:
            line[k.FIRST], line[k.CHILDREN] = first, len(node.children)
            line[k.TABLE], line[k.NAMES] = len(self.names), len(node.child_of_name)
            self.names += node.child_of_name.tolist()
            self.rows += len(node.children)
            children = [self._add(child, first + i) for i, child in enumerate(node.children)]
        elif action == k.LIST:
            elements = _Builder(node.children[0], self.structs).level
            children = [elements.order[0]]
        elif action == k.DECIMALS:
            line[k.TABLE], line[k.SCALE] = len(self.largest), node.schema.scale
            self.largest += _largest(node.schema.precision, node.schema.scale)
        for i, child in enumerate(children):
            self.structs.point(place + k.TYPED_CHILDREN + i, child.place + 2 * structs.WORDS)
        height = 1 + max((child.height for child in children), default=0)
        self.steps[number] = Step(node, action, row, out, spare, place, tuple(children), height, elements)
        return self.steps[number]

    @staticmethod
    def _action(node: Node) -> int:
        if node.primitive is not None:
            return _ACTIONS.get(node.primitive.id, k.FIXED)
        return k.RESIDUAL if node.typed is None else k.OBJECT if node.by_name else k.LIST


def _largest(precision: int, scale: int) -> list[tuple[int, int]]:
    """The largest unscaled value that can be multiplied by 10**up within the precision: its (low, high) words, by `up`."""
    largest = [(10**precision - 1) // 10**up for up in range(scale + 1)]
    return [(n & (1 << 64) - 1, n >> 64) for n in largest]

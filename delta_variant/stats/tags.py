"""The tags of an Add action, for what its statistics cannot hold; and TAGS_ONLY, the property of tables with bounds in tags.

PLAIN_TAG is on files whose VARIANT columns `write` left plain. The marker (BOUNDS_TAG) says that this package computed the
bounds. NONNULL_TAG and TIMES_TAG have more bounds.

The protocol gives no bounds to a path with a single JSON null or NaN, and counts neither nulls nor rows without a path. For
such paths the tag NONNULL_TAG holds a Variant object in the text form of bounds (`bounds.encode_bounds`). A key is a
normalized path without its last step, with the physical names of the column in front: `$['v']['properties']`. Its value is
an object from the last step, `['alert']`, to an array: the number of rows with a JSON null, the number of rows without the
path, the minimum and the maximum:

    {"$['v']['properties']": {"['alert']": [1370, 0, "green", "yellow"], "['felt']": [1707, 0]}}

A path without values has the two counts only. A maximum that cannot be cut is a JSON null. NaN is the largest value.
Integers and decimals have their smallest form. Deleted rows are counted too.

JSON has no times, so they are strings, whose bounds say nothing about `v:created_at::timestamp`. The tag TIMES_TAG has the
paths whose values are all strings in a form of `kernels.times`, JSON nulls aside, in an object of the same structure. The
array has the first and the last of the times:

    strings without an offset (dates among them)    [local, local]                      as TIMESTAMP_NTZ
    strings whose offset is zero                    [instant, instant]                  as TIMESTAMP: the local times are in UTC
    strings with any offset                         [instant, instant, local, local]

A local time is what the string says without its offset.

Delta carries tags through every scan that it plans. They are therefore small, and tables of many files have only the
marker: planning took 20 to 47 % longer for 30,000 files with 128 to 512 characters, and 4 % for 2,000 files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from delta_variant.constants import BOUNDS_TAG, BOUNDS_TAG_VALUE, NONNULL_TAG, TIMES_TAG
from delta_variant.paths import normalized
from delta_variant.stats.bounds import encode_bounds, longest_fitting

TAGS_ONLY = "delta_variant.tagsOnly"
"""The table property of tables that have bounds in tags only, because they lack the feature for bounds in statistics."""
PLAIN_TAG = "delta_variant.plain"
"""The tag of a file with VARIANT columns that `write` chose to leave plain, so that `shred` need not try again."""
MAX_TAGGED_FILES = 2000
"""New files of a table that has this many files get the marker only."""
MAX_SIZE = 512 - len(f"{BOUNDS_TAG}{BOUNDS_TAG_VALUE}")
"""The limit for the other tags of a file, in characters with their names; with the marker, tags have up to 512."""

Entry = tuple[tuple[str, ...], tuple[str, ...], list[Any]]
"""(physical names of the column, keys of the path, array)."""


def place(column: Sequence[str], keys: Sequence[str]) -> tuple[str, str]:
    """The two keys that lead to the array of a path in the tag's object. column: its physical names; keys: those of the path.

    >>> import delta_variant as dv
    >>> dv.stats.place(["v"], ["properties", "alert"])
    ("$['v']['properties']", "['alert']")
    """
    steps = (*column, *keys)
    parent = normalized(steps[:-1])
    return parent, normalized(steps).removeprefix(parent)


def encode_tags(nonnull: Sequence[Entry], times: Sequence[Entry]) -> dict[str, str]:
    """The two tags by name. Each has the longest prefix of its entries that fits; one without entries is left out.

    A tag may take the space that the other one leaves. If both need more than half, each gets half.
    """
    alone = _tag(NONNULL_TAG, nonnull, MAX_SIZE)
    tags = _tag(TIMES_TAG, times, max(MAX_SIZE // 2, MAX_SIZE - _size(alone)))
    return tags | _tag(NONNULL_TAG, nonnull, MAX_SIZE - _size(tags))


def _size(tags: Mapping[str, str]) -> int:
    return sum(map(len, [*tags, *tags.values()]))


def _tag(name: str, entries: Sequence[Entry], size: int) -> dict[str, str]:
    """A tag of at most `size` characters, with its name; {} if no entry fits."""

    def encoded(kept: Sequence[Entry]) -> tuple[str | None]:
        tree: dict[str, dict[str, list[Any]]] = {}
        for column, keys, array in kept:
            parent, last = place(column, keys)
            tree.setdefault(parent, {})[last] = array
        return (encode_bounds(tree) if tree else None,)

    [text] = longest_fitting(entries, encoded, size - len(name))
    return {} if text is None else {name: text}

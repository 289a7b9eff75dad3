"""Which VARIANT paths of a scan are read from their typed columns, and how (`scala/TypedScans.scala`).

`proofs`: the uses of a scan's VARIANTs by path → the bounds whose types prove the typed columns. `groups`: what the log says of
each file → how the files are planned, with the casts from the columns to the types that the uses ask for (`casts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delta_variant import types as t
from delta_variant.errors import InvalidPathError
from delta_variant.messages import (
    Bound,
    Group,
    GroupsReply,
    GroupsRequest,
    Leaf,
    PathUse,
    Proof,
    ProofsReply,
    ProofsRequest,
    ProvenPath,
    Reading,
    Step,
)
from delta_variant.paths import normalized, object_keys, parse_variant_path, steps
from delta_variant.queries.casts import reading
from delta_variant.stats import TYPED_TAG_VALUE

MAX_GROUPS: Final = 8
"""Groups of files that have the paths in columns of the same types. Each group is a scan of its own in the plan."""


def proofs(request: ProofsRequest) -> ProofsReply:
    """Which bounds prove that the paths of a scan can be read from typed columns; or the reason if a path is not valid.

    In files with the marker 2, the type of the bound `leaf` of a proof is that of the typed column, which holds all values of
    the path (protocol/README.md, M1). It is None if the column has no bounds, or if the path goes through an array, which
    has none. `range` is the number of the path's smallest value, which that of its largest value follows, if the path is
    requested as an integer; else None.

    >>> from delta_variant.messages import UsedPath
    >>> reply = proofs(ProofsRequest((("v",),), (UsedPath(("v",), "v", "$.a"),), (PathUse(0, "int"),)))
    >>> reply.proofs, [bound.side for bound in reply.bounds]
    ((Proof(steps=(Step(key='a', index=None),), leaf=0, range=1),), ['leaf', 'min', 'max'])
    """
    integers = {use.path for use in request.uses if use.type in t.INTEGERS}
    bounds: list[Bound] = []
    found: list[Proof] = []
    for number, path in enumerate(request.paths):
        try:
            parsed = parse_variant_path(path.path)
        except InvalidPathError as error:
            return ProofsReply((), (), (str(error),))
        listed = tuple(Step(None, step) if isinstance(step, int) else Step(step, None) for step in parsed)
        keys = object_keys(parsed)
        if keys is None or path.array is not None or path.column not in request.columns:
            found.append(Proof(listed, None, None))
            continue
        is_integer = number in integers
        found.append(Proof(listed, len(bounds), len(bounds) + 1 if is_integer else None))
        column, key = request.columns.index(path.column), normalized(keys)
        bounds.append(Bound("leaf", column, key, mark=TYPED_TAG_VALUE))
        bounds += [Bound(side, column, key, kinds=("BIGINT",), types=("bigint",)) for side in ("min", "max") if is_integer]
    return ProofsReply(tuple(bounds), tuple(found), ())


def groups(request: GroupsRequest) -> GroupsReply:
    """Which files of a scan are read from typed columns, and with which casts: the MAX_GROUPS largest groups. Spark's scan
    reads the files of the others. The files of a group have one combination of column types.

    Columns are read as exactly the type they have: Spark 4.2 fails when it reads INT32 as BIGINT from a dictionary inside a
    struct, or SMALLINT as INT.

    >>> from delta_variant.messages import FileGroup
    >>> groups(GroupsRequest((PathUse(0, "bigint"),), (FileGroup((Leaf("int", room=None),), bytes=1000),)))
    GroupsReply(groups=(Group(number=0, casts=('safe',)),))
    """
    asked = request.groups
    largest = sorted(range(len(asked)), key=lambda number: -asked[number].bytes)[:MAX_GROUPS]
    return GroupsReply(tuple(Group(number, _casts(request.uses, asked[number].leaves)) for number in largest))


def _casts(uses: Sequence[PathUse], leaves: Sequence[Leaf]) -> tuple[str, ...]:
    return tuple(reading(leaves[use.path].type, use.type, leaves[use.path].room) for use in uses)


def outcome(found: Reading | None) -> tuple[tuple[str, ...], int, tuple[str, ...]]:
    """What `explain` says of a scan: its paths, how many files are read from typed columns, and why not more.

    >>> paths = ProvenPath("v", "$.a", array=None, files=3), ProvenPath("v", "$.b", array=0, files=5)
    >>> outcome(Reading(scan=1, files=5, logged=0, typed=3, paths=paths, reasons=()))
    (('v:a', 'v:a[*].b'), 3, ('v:a: a typed column is proven in 3 of 5 files',))
    """
    if found is None:
        return (), 0, ()
    reasons = list(found.reasons)
    names = [shown(path, found.paths) for path in found.paths]
    few = [(name, path.files) for name, path in zip(names, found.paths, strict=True) if path.files < found.files]
    reasons += [f"{name}: a typed column is proven in {files:,} of {found.files:,} files" for name, files in few]
    if found.typed < found.files and not few and not reasons:
        reasons.append(f"the files have more than {MAX_GROUPS} combinations of types")
    return tuple(dict.fromkeys(names)), found.typed, tuple(dict.fromkeys(reasons))


def shown(path: ProvenPath, paths: Sequence[ProvenPath]) -> str:
    """A path of a scan as users write it, in one spelling for all that Spark takes; text that is not a path as it is.

    paths: those of the scan. A path in the elements of an array has `[*]` behind that of the array.
    """
    try:
        return f"{path.name}:{steps(_keys(path, paths))}"
    except InvalidPathError:
        return f"{path.name}:{path.path}"


def _keys(path: ProvenPath, paths: Sequence[ProvenPath]) -> tuple[str | int | None, ...]:
    inside = () if path.array is None else (*_keys(paths[path.array], paths), None)
    return inside + parse_variant_path(path.path)

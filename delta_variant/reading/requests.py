"""The two requests about one scan (`java/TypedScans.java`): `proofs`, and after the log is read, `groups`. JSON in, JSON out.

A use is {"path": number, "type": Spark type}; a path is {"column": [name, ...], "name": ..., "path": path of `variant_get`}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delta_variant.errors import InvalidPathError
from delta_variant.paths import normalized, parse_variant_path
from delta_variant.reading.casts import INTEGERS, cast
from delta_variant.stats import TYPED_TAG_VALUE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_GROUPS: Final = 8
"""Groups of files that have the paths in columns of the same types. Each group is a scan of its own in the plan."""


def proofs(request: Mapping[str, Any]) -> dict[str, Any]:
    """Which bounds prove that the paths of a scan can be read from typed columns.

    In: {"paths": [...], "columns": [...], "uses": [...]}; `columns` have bounds as VARIANT in Delta's parsed statistics.
    Out: {"keys": [[key, ...], ...], "columns": [[name, ...], ...], "bounds": [...], "leaves": [...], "ranges": [...]}, or
    {"reasons": [...]} if a path is not valid or goes through an array. All lists but `bounds` have one entry for each path:

        keys, columns    the keys of the path, and the names of its column
        leaves           the number of a bound. In files with the marker 2, the type of this bound is that of the typed column,
                         which holds all values of the path (protocol/README.md, M1). None if the column has no bounds
        ranges           the number of the path's smallest value, which that of its largest value follows, if the path is
                         requested as an integer. None for other paths, and if the column has no bounds

    >>> path = {"column": ["v"], "name": "v", "path": "$.a"}
    >>> reply = proofs({"paths": [path], "columns": [["v"]], "uses": [{"path": 0, "type": "int"}]})
    >>> reply["leaves"], reply["ranges"], [bound["side"] for bound in reply["bounds"]]
    ([0], [1], ['leaf', 'min', 'max'])
    """
    columns = [tuple(names) for names in request["columns"]]
    integers = {use["path"] for use in request["uses"] if use["type"] in INTEGERS}
    keys: list[Sequence[str | int]] = []
    bounds: list[dict[str, Any]] = []
    leaves: list[int | None] = []
    ranges: list[int | None] = []
    reasons = []
    for number, path in enumerate(request["paths"]):
        try:
            steps = parse_variant_path(path["path"])
        except InvalidPathError as error:
            return {"reasons": [str(error)]}
        if not all(isinstance(step, str) for step in steps):
            reasons.append(f"{shown(path)} goes through an array")
        keys.append(steps)
        names = tuple(path["column"])
        has_bounds = names in columns
        leaves.append(len(bounds) if has_bounds else None)
        ranges.append(len(bounds) + 1 if has_bounds and number in integers else None)
        if has_bounds:
            location = {"column": columns.index(names), "key": normalized([str(step) for step in steps]), "tag": None}
            leaf = {**location, "side": "leaf", "mark": TYPED_TAG_VALUE}
            exact = {"times": None, "kinds": ["BIGINT"], "marked": [], "types": ["bigint"]}
            bounds += [leaf, *({**leaf, **exact, "side": side} for side in ("min", "max") if number in integers)]
    if reasons:
        return {"reasons": reasons}
    named = [path["column"] for path in request["paths"]]
    return {"keys": keys, "columns": named, "bounds": bounds, "leaves": leaves, "ranges": ranges}


def groups(request: Mapping[str, Any]) -> dict[str, Any]:
    """Which files of a scan are read from typed columns, and with which casts.

    In: {"uses": [...], "kinds": [{"leaves": [{"type": ..., "room": ...}, ...], "bytes": ...}, ...]}. A kind is one combination
    of column types that some files have: `leaves` has the type of each path's column, and `bytes` is the size of these files.
    `room` is the smallest type that holds all values of a path that is requested as an integer.
    Out: {"groups": [{"kind": number, "casts": [how each use is answered]}, ...]}, for the MAX_GROUPS largest kinds. Spark's
    scan reads the files of the others.

    Columns are read as exactly the type they have: Spark 4.2 fails when it reads INT32 as BIGINT from a dictionary inside a
    struct, or SMALLINT as INT.

    >>> groups({"uses": [{"path": 0, "type": "bigint"}], "kinds": [{"leaves": [{"type": "int"}], "bytes": 1000}]})
    {'groups': [{'kind': 0, 'casts': ['safe']}]}
    """
    kinds = request["kinds"]
    largest = sorted(range(len(kinds)), key=lambda number: -kinds[number]["bytes"])[:MAX_GROUPS]
    return {"groups": [{"kind": number, "casts": _casts(request["uses"], kinds[number]["leaves"])} for number in largest]}


def _casts(uses: Sequence[Mapping[str, Any]], leaves: Sequence[Mapping[str, Any]]) -> list[str]:
    return [cast(leaves[use["path"]]["type"], use["type"], leaves[use["path"]].get("room")) for use in uses]


def outcome(found: Mapping[str, Any]) -> tuple[tuple[str, ...], int, tuple[str, ...]]:
    """What `explain` says of a scan: its paths, how many files are read from typed columns, and why not more.

    >>> outcome({"paths": [{"name": "v", "path": "$.a", "files": 3}], "files": 5, "typed": 3})
    (('v:a',), 3, ('v:a: a typed column is proven in 3 of 5 files',))
    """
    paths = found.get("paths", ())
    reasons = list(found.get("reasons", ()))
    typed, files = found.get("typed", 0), found.get("files", 0)
    few = [path for path in paths if path["files"] < files]
    reasons += [f"{shown(path)}: a typed column is proven in {path['files']:,} of {files:,} files" for path in few]
    if typed < files and not few and not reasons:
        reasons.append(f"the files have more than {MAX_GROUPS} combinations of types")
    return tuple(map(shown, paths)), typed, tuple(reasons)


def shown(path: Mapping[str, Any]) -> str:
    """A path of a scan as users write it."""
    return f"{path['name']}:{path['path'].removeprefix('$').removeprefix('.') or '$'}"

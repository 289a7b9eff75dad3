"""The two requests about one scan (`java/TypedScans.java`): `proofs`, and after the log was read, `groups`. JSON in, JSON out.

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
"""Of files that have their paths in columns of other types than others; each is a scan of its own in the plan."""


def proofs(request: Mapping[str, Any]) -> dict[str, Any]:
    """{"paths": [...], "columns": [...], "uses": [...]} → {"keys": [[key, ...], ...], "columns": [[name, ...], ...], "bounds":
    [...], "leaves": [...], "ranges": [...]}, or {"reasons": [...]}.

    `columns` of the request have bounds as VARIANT in Delta's parsed statistics, those of the reply are the paths' own. The
    type of a bound of a marked file is that of the path's typed column, which holds all of the path's values
    (protocol/README.md, M1): `leaves` has the number of that bound by path, or None. Others are the smallest and the largest
    integer of paths that are asked for as integers; `ranges` has the number of the first of the two by path, or None.
    """
    columns = [tuple(names) for names in request["columns"]]
    wanted = {use["path"] for use in request["uses"] if use["type"] in INTEGERS}
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
            reasons.append(f"{_shown(path)} goes through an array")
        keys.append(steps)
        names = tuple(path["column"])
        has_bounds = names in columns
        leaves.append(len(bounds) if has_bounds else None)
        ranges.append(len(bounds) + 1 if has_bounds and number in wanted else None)
        if has_bounds:
            place = {"column": columns.index(names), "key": normalized([str(step) for step in steps]), "tag": None}
            leaf = {**place, "side": "leaf", "mark": TYPED_TAG_VALUE}
            exact = {"kinds": ["BIGINT"], "marked": [], "types": ["bigint"]}
            bounds += [leaf, *({**leaf, **exact, "side": side} for side in ("min", "max") if number in wanted)]
    if reasons:
        return {"reasons": reasons}
    named = [path["column"] for path in request["paths"]]
    return {"keys": keys, "columns": named, "bounds": bounds, "leaves": leaves, "ranges": ranges}


def groups(request: Mapping[str, Any]) -> dict[str, Any]:
    """{"uses": [...], "kinds": [{"leaves": [{"type": ..., "room": ...}, ...], "bytes": ...}, ...]} → {"groups": [...]}.

    A kind is one combination of types that files have, and `room` the smallest type that has room for the integers of a path
    that is asked for as one. A group is {"kind": number, "casts": [how each use is answered]}; files of kinds that are in no
    group are left to Spark's scan. Columns are read as exactly what they are: Spark 4.2 fails where it reads INT32 as BIGINT
    from a dictionary inside a struct, or SMALLINT as INT.
    """
    kinds = request["kinds"]
    largest = sorted(range(len(kinds)), key=lambda number: -kinds[number]["bytes"])[:MAX_GROUPS]
    return {"groups": [{"kind": number, "casts": _casts(request["uses"], kinds[number]["leaves"])} for number in largest]}


def _casts(uses: Sequence[Mapping[str, Any]], leaves: Sequence[Mapping[str, Any]]) -> list[str]:
    return [cast(leaves[use["path"]]["type"], use["type"], leaves[use["path"]].get("room")) for use in uses]


def outcome(found: Mapping[str, Any]) -> tuple[tuple[str, ...], int, tuple[str, ...]]:
    """What `explain` says of a scan: its paths, how many files are read from typed columns, and why not more."""
    paths = found.get("paths", ())
    reasons = list(found.get("reasons", ()))
    typed, files = found.get("typed", 0), found.get("files", 0)
    few = [path for path in paths if path["files"] < files]
    reasons += [f"{_shown(path)}: a typed column is proven in {path['files']:,} of {files:,} files" for path in few]
    if typed < files and not few and not reasons:
        reasons.append(f"the files have more than {MAX_GROUPS} combinations of types")
    return tuple(map(_shown, paths)), typed, tuple(reasons)


def _shown(path: Mapping[str, Any]) -> str:
    return f"{path['name']}:{path['path'].removeprefix('$').removeprefix('.') or '$'}"

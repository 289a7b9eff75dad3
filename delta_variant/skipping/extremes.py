"""The bounds from which Java answers MIN and MAX of Variant paths (`java/LogAggregates.java`): `extremes`. JSON in, JSON out.

A cast that preserves order (`casts`) maps the smallest bound to the smallest value. This needs bounds that are values of
the file, which Java checks, and that are not cut: strings may be (protocol/README.md, B3), so text and casts to text are
excluded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_variant.errors import InvalidPathError
from delta_variant.paths import parse_variant_path
from delta_variant.skipping.bounds import Log, Projection
from delta_variant.skipping.casts import kinds_for
from delta_variant.skipping.predicates import Path

if TYPE_CHECKING:
    from collections.abc import Mapping


def extremes(request: Mapping[str, Any]) -> dict[str, Any]:
    """The bounds to read for MIN and MAX of some paths.

    In: {"columns": [[name, ...], ...], "paths": [{"column": [name, ...], "path": path of `variant_get`, "type": Spark type},
    ...]}, with the `columns` of `requests`. Out: {"bounds": [...]}: for each path, in that order, its minimum and its maximum,
    and last the number of rows. The list is empty if one of the paths has no such bounds.

    >>> request = {"columns": [["v"]], "paths": [{"column": ["v"], "path": "$.id", "type": "bigint"}]}
    >>> [bound["side"] for bound in extremes(request)["bounds"]]
    ['min', 'max', 'rows']
    """
    log = Log(tuple(map(tuple, request["columns"])), times=True, exact=True)
    bounds: list[dict[str, Any]] = []
    for requested in request["paths"]:
        path = _path(requested)
        if path is None or path.column not in log.columns:
            return {"bounds": []}
        both = Projection(log)
        both.number("min", path)
        both.number("max", path)
        bounds += both.json()
    return {"bounds": [*bounds, {"side": "rows"}]}


def _path(requested: Mapping[str, Any]) -> Path | None:
    try:
        steps = parse_variant_path(requested["path"])
    except InvalidPathError:
        return None
    keys = tuple(step for step in steps if isinstance(step, str))
    if len(keys) < len(steps) or requested["type"].startswith("string") or not kinds_for(requested["type"]):
        return None
    return Path(tuple(requested["column"]), keys, requested["type"])

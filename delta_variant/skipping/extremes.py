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
    """{"columns": [[name, ...], ...], "paths": [{"column": [name, ...], "path": `variant_get`'s, "type": Spark's}, ...]} →
    {"bounds": [...]}: for each path, in that order, the smallest and the largest value, and last the number of rows. The list
    is empty where one of the paths has no such bounds.
    """
    log = Log(tuple(map(tuple, request["columns"])))
    bounds: list[dict[str, Any]] = []
    for asked in request["paths"]:
        path = _path(asked)
        if path is None or path.column not in log.columns:
            return {"bounds": []}
        both = Projection(log)
        both.number("min", path)
        both.number("max", path)
        bounds += both.json()
    return {"bounds": [*bounds, {"side": "rows"}]}


def _path(asked: Mapping[str, Any]) -> Path | None:
    try:
        steps = parse_variant_path(asked["path"])
    except InvalidPathError:
        return None
    keys = tuple(step for step in steps if isinstance(step, str))
    if len(keys) < len(steps) or asked["type"].startswith("string") or not kinds_for(asked["type"]):
        return None
    return Path(tuple(asked["column"]), keys, asked["type"])

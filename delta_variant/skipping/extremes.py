"""The bounds from which the JVM answers MIN and MAX of Variant paths (`scala/LogAggregates.scala`): `extremes`.

A cast that preserves order (`casts`) maps the smallest bound to the smallest value. This needs bounds that are values of
the file, which the JVM checks, and that are not cut: strings may be (protocol/README.md, B3), so text and casts to text are
excluded.
"""

from __future__ import annotations

from delta_variant.errors import InvalidPathError
from delta_variant.messages import Bound, ExtremesReply, ExtremesRequest, TypedPath
from delta_variant.paths import parse_variant_path
from delta_variant.skipping.bounds import Log, Projection
from delta_variant.skipping.casts import kinds_for
from delta_variant.skipping.predicates import Path


def extremes(request: ExtremesRequest) -> ExtremesReply:
    """The bounds to read for MIN and MAX of some paths: for each path, in that order, its minimum and its maximum, and last the
    number of rows. There are none if one of the paths has no such bounds.

    >>> request = ExtremesRequest(columns=(("v",),), paths=(TypedPath(("v",), "$.id", "bigint"),))
    >>> [bound.side for bound in extremes(request).bounds]
    ['min', 'max', 'rows']
    """
    log = Log(request.columns, times=True, exact=True)
    bounds: list[Bound] = []
    for requested in request.paths:
        path = _path(requested)
        if path is None or path.column not in log.columns:
            return ExtremesReply(())
        both = Projection(log)
        both.number("min", path)
        both.number("max", path)
        bounds += both.read()
    return ExtremesReply((*bounds, Bound("rows")))


def _path(requested: TypedPath) -> Path | None:
    try:
        steps = parse_variant_path(requested.path)
    except InvalidPathError:
        return None
    keys = tuple(step for step in steps if isinstance(step, str))
    if len(keys) < len(steps) or requested.type.startswith("string") or not kinds_for(requested.type):
        return None
    return Path(requested.column, keys, requested.type)

"""One scan's request → the reply that Java evaluates: `answer`. JSON in, JSON out (`java/Filters.java`, `java/SkipFiles.java`).

    {"operands": [expression, ...], "filters": [filter, ...], "columns": [[name, ...], ...], "files": count,
     "marked": bool, "nonnull": bool, "times": bool, "index": bool, "exact": bool, "trust_all": bool, "explain": bool}

`operands` are the distinct expressions that the filters compare. `columns` have bounds as VARIANT in Delta's parsed
statistics. `files` is the number of files in the scan. `marked` to `trust_all` are those of `bounds.Log`, but `index` says
whether the table may have an index, and may be left out. `explain` asks for reasons in the reply. A filter is
{"op": ..., "args": [...]}; its arguments are filters, {"operand": number} or {"constant": number, "type": ..., "texts": [...],
"size": ..., "null": ...}. An unknown filter keeps every file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from delta_variant.errors import InvalidPathError
from delta_variant.paths import parse_variant_path
from delta_variant.skipping.bounds import Log, Projection, size
from delta_variant.skipping.casts import TIMES, keeps_order
from delta_variant.skipping.predicates import (
    And,
    Comparison,
    Constants,
    In,
    NotNull,
    Or,
    Other,
    Path,
    Predicate,
    StartsWith,
    Unknown,
    leaves,
    merged,
    negate,
)
from delta_variant.skipping.translation import translate
from delta_variant.skipping.verdicts import verdicts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_COMPARISONS: Final = 2_000
"""Comparisons of bounds for one file. An IN of any length counts as one."""
MAX_ALL_COMPARISONS: Final = 100_000_000
"""Comparisons of bounds for all files of a scan, which take about a second."""
MAX_BOUNDS: Final = 128
"""Distinct bounds. A path has two, and a file of this package has bounds for 32 paths of a column."""
MAX_ALL_BOUNDS: Final = 4_000_000
"""Bounds that are read for all files of a scan, which takes a few seconds the first time."""
MAX_PROBES: Final = 1_000_000
"""Values that the index is asked for by one comparison, for all files of a scan, which takes a tenth of a second."""
MAX_QUESTIONS: Final = 128
"""Questions of one query for which `explain` counts files."""

_FLIPPED: Final = {"=": "=", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The reply to a request.

    `tree` is the predicate on bounds (see `bounds`), or None if nothing can be proven. `bounds` lists the bounds that it
    compares, and `members` the paths of which it asks the index. With `explain`, the reply also has `predicates`, the query's
    predicates on Variant paths as text; `reasons`, why parts of them are not used; `verdicts`, from which Java computes what
    each question proves for a file; and the `request`, from which `questions` makes the questions again.

    >>> operand = {"get": {"column": ["v"], "name": "v"}, "path": "$.a", "type": "int"}
    >>> less = {"op": "<", "args": [{"operand": 0}, {"constant": 0, "type": "int", "texts": ["5"]}]}
    >>> log = {"columns": [["v"]], "marked": True, "nonnull": False, "times": False, "exact": False, "trust_all": False}
    >>> answer({"operands": [operand], "filters": [less], **log, "files": 10, "explain": False})["tree"]
    ['all', ['<', 0, 0]]
    """
    predicate, log = questions(request)
    trees, projection, reasons = _affordable(predicate, log, max(request["files"], 1))
    reply: dict[str, Any] = {"tree": ["all", *trees] if projection.bounds or projection.members else None}
    if request["explain"]:
        each = list(leaves(predicate))
        if len(each) > MAX_QUESTIONS:
            reasons.append(
                f"the query has {len(each):,} questions: files are counted for the first {MAX_QUESTIONS} of them, and not "
                "counted for the others, which can prune files all the same"
            )
        reply |= {
            "predicates": [str(part) for part in predicate.parts if not isinstance(part, Unknown)],
            "reasons": reasons,
            "verdicts": verdicts(each[:MAX_QUESTIONS], projection),
            "request": request,
        }
    return reply | {"bounds": projection.json(), "members": projection.members_json()}


def _affordable(predicate: And, log: Log, files: int) -> tuple[list[Any], Projection, list[str]]:
    """The trees of the parts that fit into the budget of planning, the bounds that they compare, and why other parts are left
    out."""
    trees: list[Any] = []
    reasons: list[str] = []
    count, known = 0, Projection(log)
    for part in predicate.parts:
        bounds, unused = translate(part, log)
        reasons += unused
        needed = Projection(log, dict(known.bounds), dict(known.members))
        tree = bounds.json(needed)
        comparisons, read = count + size(bounds), len(needed.bounds)
        long = comparisons > min(MAX_COMPARISONS, MAX_ALL_COMPARISONS / files)
        if long or read > min(MAX_BOUNDS, MAX_ALL_BOUNDS / files):
            earlier = f", with the {count:,} of earlier predicates," if count else ""
            reasons.append(
                f"the predicate that contains {next(leaves(part), part)}: {size(bounds):,} comparisons{earlier} of {read:,} "
                f"bounds are too many for {files:,} files"
            )
        else:
            trees.append(tree)
            count, known = comparisons, needed
    return trees, known, reasons


def questions(request: Mapping[str, Any]) -> tuple[And, Log]:
    """The query's predicate on Variant paths, and what the log can hold about the scan's files.

    >>> operand = {"get": {"column": ["v"], "name": "v"}, "path": "$.a", "type": "int"}
    >>> less = {"op": "<", "args": [{"operand": 0}, {"constant": 0, "type": "int", "texts": ["5"]}]}
    >>> log = {"columns": [["v"]], "marked": True, "nonnull": False, "times": False, "exact": False, "trust_all": False}
    >>> str(questions({"operands": [operand], "filters": [less], **log})[0])
    '(v:a::int < 5)'
    """
    operands = [_expression(node) for node in request["operands"]]
    filters = [_predicate(node, operands) for node in request["filters"]]
    # Spark infers IS NOT NULL from other comparisons of the path. It adds nothing to them.
    implied = {leaf.path for part in filters if not isinstance(part, NotNull | Or) for leaf in leaves(part)}
    filters = [part for part in filters if not (isinstance(part, NotNull) and part.path in implied)]
    whole = merged(And(tuple(filters)))
    columns = tuple(map(tuple, request["columns"]))
    index = MAX_PROBES // max(1, request.get("files", 1)) if request.get("index") else 0
    log = Log(columns, index=index, **{key: request[key] for key in ("marked", "nonnull", "times", "exact", "trust_all")})
    return whole if isinstance(whole, And) else And((whole,)), log


def _predicate(node: Mapping[str, Any], operands: Sequence[Path | Unknown]) -> Predicate:
    if node.get("aside"):
        return Unknown()
    if "other" in node:
        return Other(node["other"], node["text"])
    op = node.get("op")
    if op is None:
        return Unknown(f"{node['unknown']}: not a comparison with a constant")
    if op == "not":
        return negate(_predicate(node["args"][0], operands))
    if op == "isnull":
        return negate(_predicate({**node, "op": "isnotnull"}, operands))
    if op in {"and", "or"}:
        parts = tuple(_predicate(part, operands) for part in node["args"])
        return And(parts) if op == "and" else Or(parts)
    first, *others = (_side(side, operands) for side in node["args"])
    if isinstance(first, Constants) and op in _FLIPPED:
        op, first, others = _FLIPPED[op], others[0], [first]
    unknown = next((side for side in (first, *others) if isinstance(side, Unknown)), None)
    if unknown is not None:
        return unknown
    constants = tuple(side for side in others if isinstance(side, Constants))
    if isinstance(first, Path) and len(constants) == len(others):
        return _test(op, first, constants)
    return Unknown(f"{first} {op}: not a comparison with a constant")


def _side(node: Mapping[str, Any], operands: Sequence[Path | Unknown]) -> Path | Constants | Unknown:
    if "operand" in node:
        return operands[int(node["operand"])]
    if "constant" not in node:
        return Unknown(f"{node.get('unknown', 'an expression')}: not a Variant path")
    texts = tuple(node["texts"])
    return Constants(node["type"], texts, node.get("size", len(texts)), node.get("null", False), node["constant"])


def _test(op: str, path: Path, constants: tuple[Constants, ...]) -> Predicate:
    """The predicate `path op constants`. `path <=> NULL` is unknown, because it is true for rows without the path."""
    if op == "in":
        return In(path, constants)
    if op == "isnotnull":
        return NotNull(path)
    if op == "startswith":
        return StartsWith(path, constants[0])
    if op == "like":  # the constant is the part of the pattern before its first wildcard or escape
        if constants[0].texts != ("",):
            return And((StartsWith(path, constants[0]), Unknown()))
        return Unknown(f"{path} LIKE: the pattern has no fixed beginning")
    if op in _FLIPPED and not (op == "<=>" and constants[0].null):
        return Comparison(op, path, constants[0])
    return Unknown(f"{path} {op}: not a comparison with a constant")


def _expression(node: Mapping[str, Any]) -> Path | Unknown:
    if "column" in node:
        return Path(tuple(node["column"]), (), name=node["name"])
    if "get" in node or "cast" in node:
        inner = _expression(node.get("get") or node["cast"])
        return _narrowed(inner, node) if isinstance(inner, Path) else inner
    return Unknown(f"{node.get('unknown', 'an expression')}: not a Variant path")


def _narrowed(path: Path, node: Mapping[str, Any]) -> Path | Unknown:
    target = node["type"]
    if path.result == "variant":
        try:
            steps = parse_variant_path(node.get("path", "$"))
        except InvalidPathError as error:
            return Unknown(str(error))
        keys = tuple(step for step in steps if isinstance(step, str))
        if len(keys) < len(steps):
            return Unknown(f"{path.name}: {node['path']} goes through an array, which has no bounds")
        return replace(path, keys=path.keys + keys, type=target)
    if "cast" in node and path.result == "string" and target in TIMES:
        return replace(path, type=target, text=True)
    if "cast" in node and keeps_order(path.result, target):
        return replace(path, casts=(*path.casts, target))
    return Unknown(f"{path}: a cast to {target} can fail or change the order of values")

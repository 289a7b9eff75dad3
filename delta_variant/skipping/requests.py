"""One scan's request → the reply that Java evaluates: `answer`. JSON in, JSON out (`java/Filters.java`, `java/SkipFiles.java`).

    {"operands": [expression, ...], "filters": [filter, ...], "columns": [[name, ...], ...], "files": count,
     "marked": bool, "nonnull": bool, "trust_all": bool, "explain": bool}

`operands` are the distinct expressions that the filters compare; `columns` have bounds as VARIANT in Delta's parsed
statistics; the other fields are those of `bounds.Log`. A filter is {"op": ..., "args": [...]}; its arguments are filters,
{"operand": number} or {"constant": number, "type": ..., "texts": [...], "size": ..., "null": ...}. An unknown filter keeps
every file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from delta_variant.errors import InvalidPathError
from delta_variant.paths import parse_variant_path
from delta_variant.skipping.bounds import Log, Projection, size
from delta_variant.skipping.casts import keeps_order
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
"""Of bounds, for one file; an IN of any length is one."""
MAX_ALL_COMPARISONS: Final = 100_000_000
"""Of bounds, for all files of a scan: about a second."""
MAX_BOUNDS: Final = 128
"""Distinct ones; a path has two, and a file of this package bounds for 32 paths of a column."""
MAX_ALL_BOUNDS: Final = 4_000_000
"""To be read for all files of a scan: a few seconds, the first time."""
MAX_QUESTIONS: Final = 128
"""Of a query's, that `explain` counts files for."""

_FLIPPED: Final = {"=": "=", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The reply to a request: `tree` is the predicate on bounds (see `bounds`), None where nothing can be proved, and `bounds`
    what it compares.

    To `explain`, it adds `predicates`, what the query asks of Variant paths, `reasons` why parts of it are not used,
    `verdicts`, which bounds say what each question proves for a file, and the request, from which `questions` makes them again.
    """
    asked, log = questions(request)
    trees, projection, reasons = _affordable(asked, log, max(request["files"], 1))
    reply: dict[str, Any] = {"tree": ["all", *trees] if projection.bounds else None}
    if request["explain"]:
        each = list(leaves(asked))
        if len(each) > MAX_QUESTIONS:
            reasons.append(
                f"{len(each) - MAX_QUESTIONS} questions more than the {MAX_QUESTIONS} above are asked, and not counted"
            )
        reply |= {
            "predicates": [str(part) for part in asked.parts if not isinstance(part, Unknown)],
            "reasons": reasons,
            "verdicts": verdicts(each[:MAX_QUESTIONS], projection),
            "request": request,
        }
    return reply | {"bounds": projection.json()}


def _affordable(asked: And, log: Log, files: int) -> tuple[list[Any], Projection, list[str]]:
    """The trees of those parts that fit into the budget of planning, the bounds they compare, and why others were left out."""
    trees: list[Any] = []
    reasons: list[str] = []
    count, known = 0, Projection(log)
    for part in asked.parts:
        bounds, why = translate(part, log)
        reasons += why
        needed = Projection(log, dict(known.bounds))
        tree = bounds.json(needed)
        comparisons, read = count + size(bounds), len(needed.bounds)
        long = comparisons > min(MAX_COMPARISONS, MAX_ALL_COMPARISONS / files)
        if long or read > min(MAX_BOUNDS, MAX_ALL_BOUNDS / files):
            reasons.append(
                f"{next(leaves(part))}, and what is beside it: {size(bounds):,} comparisons of {read:,} bounds are too many "
                f"for {files:,} files"
            )
        else:
            trees.append(tree)
            count, known = comparisons, needed
    return trees, known, reasons


def questions(request: Mapping[str, Any]) -> tuple[And, Log]:
    """The query's predicate on Variant paths, and what the log can hold."""
    operands = [_expression(node) for node in request["operands"]]
    filters = [_predicate(node, operands) for node in request["filters"]]
    # Spark infers IS NOT NULL from the comparisons beside it.
    implied = {leaf.path for part in filters if not isinstance(part, NotNull | Or) for leaf in leaves(part)}
    filters = [part for part in filters if not (isinstance(part, NotNull) and part.path in implied)]
    whole = merged(And(tuple(filters)))
    columns = tuple(map(tuple, request["columns"]))
    log = Log(columns, *(request[key] for key in ("marked", "nonnull", "trust_all")))
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
    """The predicate `path op constants`. For `<=>`, a NULL constant is special: a missing path equals it."""
    if op == "in":
        return In(path, constants)
    if op == "isnotnull":
        return NotNull(path)
    if op == "startswith":
        return StartsWith(path, constants[0])
    if op == "like":  # of the pattern Java sends what stands before its first wildcard or escape
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
    if "cast" in node and keeps_order(path.result, target):
        return replace(path, casts=(*path.casts, target))
    return Unknown(f"{path}: a cast to {target} does not keep the order")

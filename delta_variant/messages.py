"""What Python and the JVM say to each other, as JSON: frozen dataclasses, and the codec between them and JSON text. Pure.

The dataclasses are the case classes of `scala/Messages.scala`, with the same fields in snake case, in the same order. What a
field means is said there. A sealed trait of Scala is a union here: `Request`, `Operand`, `Side`, `Filter`, `FilePredicate`. The
classes of a union always have their name in the member `is`:

    >>> text = encoded(AllOf((Compare("<", bound=0, constant=1), HasValues(bound=2))))
    >>> text
    '{"is":"AllOf","parts":[{"is":"Compare","op":"<","bound":0,"constant":1},{"is":"HasValues","bound":2}]}'
    >>> decoded(FilePredicate, text)
    AllOf(parts=(Compare(op='<', bound=0, constant=1), HasValues(bound=2)))

All members have to be there, and no others: both sides are of one version, so anything else is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints, overload

M = TypeVar("M")

# ---- the rules ask Python: a request, and the reply to it ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PruneRequest:
    operands: tuple[Operand, ...]
    filters: tuple[Filter, ...]
    columns: tuple[tuple[str, ...], ...]
    files: int
    marked: bool
    nonnull: bool
    times: bool
    index: bool
    exact: bool
    trust_all: bool
    explain: bool


@dataclass(frozen=True, slots=True)
class PruneReply:
    predicate: FilePredicate | None
    bounds: tuple[Bound, ...]
    members: tuple[Member, ...]
    explanation: Explanation | None


@dataclass(frozen=True, slots=True)
class Explanation:
    predicates: tuple[str, ...]
    reasons: tuple[str, ...]
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    number: int
    tree: FilePredicate
    bounds: FilePredicate
    member: Indexed | None
    question: FilePredicate
    kind: int | None
    kinds: tuple[str, ...]
    marked: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExtremesRequest:
    columns: tuple[tuple[str, ...], ...]
    paths: tuple[TypedPath, ...]


@dataclass(frozen=True, slots=True)
class ExtremesReply:
    bounds: tuple[Bound, ...]


@dataclass(frozen=True, slots=True)
class ProofsRequest:
    columns: tuple[tuple[str, ...], ...]
    paths: tuple[UsedPath, ...]
    uses: tuple[PathUse, ...]


@dataclass(frozen=True, slots=True)
class ProofsReply:
    bounds: tuple[Bound, ...]
    proofs: tuple[Proof, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupsRequest:
    uses: tuple[PathUse, ...]
    kinds: tuple[Kind, ...]


@dataclass(frozen=True, slots=True)
class GroupsReply:
    groups: tuple[Group, ...]


# ---- a transaction asks Python ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteRequest:
    number: int
    location: str
    protocol: str
    metadata: str
    columns: str
    partition_by: tuple[str, ...]
    steps: Mapping[str, bool]
    texts: TextColumns | None
    read: tuple[str, ...]
    late: tuple[str, ...]
    is_call: bool
    settings: Mapping[str, str]
    options: Mapping[str, str]
    compression: str | None
    max_rows: int
    string_prefix: int
    files: int | None


@dataclass(frozen=True, slots=True)
class ClusterRequest:
    protocol: str
    metadata: str
    columns: str
    keys: str


@dataclass(frozen=True, slots=True)
class ClusterReply:
    keys: tuple[str, ...]
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class TextColumns:
    columns: tuple[str, ...]
    corrupt: str | None
    fails: bool
    allow_duplicate_keys: bool
    validate_unicode: bool


@dataclass(frozen=True, slots=True)
class WriteReply:
    task: str | None
    announces: str | None
    reason: str
    is_failure: bool


Request = PruneRequest | ExtremesRequest | ProofsRequest | GroupsRequest | WriteRequest | ClusterRequest
Reply = PruneReply | ExtremesReply | ProofsReply | GroupsReply | WriteReply | ClusterReply

# ---- the filters of a scan -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    column: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Get:
    of: Operand
    path: str
    type: str


@dataclass(frozen=True, slots=True)
class CastOf:
    of: Operand
    type: str


@dataclass(frozen=True, slots=True)
class OperandNumber:
    operand: int


@dataclass(frozen=True, slots=True)
class Constant:
    number: int
    type: str
    texts: tuple[str, ...]
    size: int
    has_null: bool


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: Filter


@dataclass(frozen=True, slots=True)
class Comparison:
    op: str
    left: Side
    right: Side


@dataclass(frozen=True, slots=True)
class StartsWith:
    value: Side
    prefix: Side


@dataclass(frozen=True, slots=True)
class Like:
    value: Side
    prefix: Constant


@dataclass(frozen=True, slots=True)
class IsNull:
    value: Side


@dataclass(frozen=True, slots=True)
class IsNotNull:
    value: Side


@dataclass(frozen=True, slots=True)
class In:
    value: Side
    list: Side


@dataclass(frozen=True, slots=True)
class Ordinary:
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Aside:
    pass


@dataclass(frozen=True, slots=True)
class Unknown:
    text: str


Operand = Column | Get | CastOf | Unknown
Side = OperandNumber | Constant | Unknown
Filter = And | Or | Not | Comparison | StartsWith | Like | IsNull | IsNotNull | In | Ordinary | Aside | Unknown

# ---- predicates on bounds --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple[FilePredicate, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[FilePredicate, ...]


@dataclass(frozen=True, slots=True)
class Compare:
    op: str
    bound: int
    constant: int


@dataclass(frozen=True, slots=True)
class HasPrefix:
    bound: int
    constant: int
    negated: bool


@dataclass(frozen=True, slots=True)
class Between:
    low: int
    high: int
    constants: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Differs:
    low: int
    high: int
    constants: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HasValues:
    bound: int


@dataclass(frozen=True, slots=True)
class Indexed:
    member: int
    constants: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OtherColumns:
    number: int


FilePredicate = AllOf | AnyOf | Compare | HasPrefix | Between | Differs | HasValues | Indexed | OtherColumns


@dataclass(frozen=True, slots=True)
class Bound:
    side: str
    column: int = -1
    key: str = ""
    tag: tuple[str, ...] | None = None
    times: tuple[str, ...] | None = None
    exact: bool = False
    kinds: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    place: str
    scale: int


# ---- typed reading ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TypedPath:
    column: tuple[str, ...]
    path: str
    type: str


@dataclass(frozen=True, slots=True)
class UsedPath:
    column: tuple[str, ...]
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class PathUse:
    path: int
    type: str


@dataclass(frozen=True, slots=True)
class Proof:
    keys: tuple[str, ...]
    leaf: int | None
    range: int | None


@dataclass(frozen=True, slots=True)
class Kind:
    leaves: tuple[Leaf, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class Leaf:
    type: str
    room: str | None


@dataclass(frozen=True, slots=True)
class Group:
    kind: int
    casts: tuple[str, ...]


# ---- Python asks: explain --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScanReport:
    table: str
    version: int | None
    total: int | None
    delta: int | None
    bounds: int | None
    skipping: Skipping | None
    reading: Reading | None
    other: str | None
    by: str | None


@dataclass(frozen=True, slots=True)
class Skipping:
    proves: bool
    predicates: tuple[str, ...]
    reasons: tuple[str, ...]
    request: PruneRequest | None
    tally: tuple[Tally, ...] | None


@dataclass(frozen=True, slots=True)
class Tally:
    question: int
    verdict: str
    files: int


@dataclass(frozen=True, slots=True)
class Reading:
    scan: int
    files: int
    logged: int
    typed: int
    paths: tuple[ProvenPath, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProvenPath:
    name: str
    path: str
    files: int


# ---- Python asks: writing --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteReport:
    add: str | None = None
    rows: int = 0
    size: int = 0
    shredded: tuple[str, ...] = ()
    left_plain: bool = False
    malformed: Mapping[str, int] = field(default_factory=dict)
    marks: Mapping[str, int] = field(default_factory=dict)
    error: Failure | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Written:
    files: int
    rows: int
    bytes: int
    shredded: tuple[tuple[str, ...], ...]
    left_plain: int
    malformed: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Additions:
    identifiers: Mapping[str, int]
    known: Mapping[str, int]
    again: bool
    removal: Removal | None
    pieces: str


@dataclass(frozen=True, slots=True)
class Removal:
    column: str | None
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Identifiers:
    versions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Listing:
    files: tuple[SourceFile, ...]
    unmatched: tuple[str, ...]
    schema: str | None
    directories: tuple[str, ...]
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SourceFile:
    path: str
    size: int
    modified: int
    named: bool
    values: tuple[str | None, ...] | None


@dataclass(frozen=True, slots=True)
class FoundLoads:
    loads: tuple[Load, ...]
    missing: tuple[str, ...]
    oldest: int


@dataclass(frozen=True, slots=True)
class Load:
    version: int
    fault: str | None
    identifiers: Mapping[str, int]
    files: tuple[str, ...]


# ---- Python asks: analyze --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AnalysisSize:
    batches: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class AnalyzedFile:
    file: int
    path: str
    stats: str | None
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AnalysisReport:
    file: int
    read: int = 0
    failed: str | None = None
    stats: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    rows: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True)
class AnalyzedBatch:
    files: int
    read: int
    rows: int
    bytes: int
    failed: Mapping[str, str]
    sources: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Committed:
    version: int
    files: int
    changed: tuple[str, ...]


# ---- the codec -------------------------------------------------------------------------------------------------------

UNIONS: Final = (Request, Operand, Side, Filter, FilePredicate)
"""The classes of these have their name in `is`."""
_NAMED: Final = frozenset(member for union in UNIONS for member in get_args(union))
_KINDS: Final = {str: "a string", int: "an integer", bool: "a boolean", NoneType: "null", list: "a list", dict: "an object"}


def encoded(message: Any) -> str:
    """A message, or a tuple of messages, as JSON text."""
    return json.dumps(message, default=_members, separators=(",", ":"))


def _members(message: Any) -> dict[str, Any]:
    kind = type(message)
    if not is_dataclass(kind):
        return dict(message)  # a Mapping; raises TypeError for what no message has
    named = {"is": kind.__name__} if kind in _NAMED else {}
    return named | {name: getattr(message, name) for name in _names(kind)}


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))


@overload
def decoded(kind: type[M], text: str | bytes) -> M: ...
@overload
def decoded(kind: Any, text: str | bytes) -> Any: ...
def decoded(kind: Any, text: str | bytes) -> Any:
    """The message of a JSON text. kind: its class, a union of classes, or a tuple of either: `tuple[ScanReport, ...]`.

    Raises ValueError, with the class and the field, for a text that is no such message.

    >>> decoded(ClusterReply, '{"keys":[],"bytes":"0","reason":""}')
    Traceback (most recent call last):
        ...
    ValueError: ClusterReply.bytes: "0" is not an integer
    """
    try:
        return _reader(kind)(json.loads(text))
    except _UnfitError as error:
        raise ValueError(f"{getattr(kind, '__name__', kind)}: {error}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{getattr(kind, '__name__', kind)}: no JSON: {error}") from None


class _UnfitError(Exception):
    """A value that does not fit a type. The field that it is for is known to the caller."""

    def __init__(self, node: Any, expected: str) -> None:
        text = json.dumps(node)
        super().__init__(f"{text if len(text) <= 60 else text[:57] + '...'} is not {expected}")


@cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    """The function that makes a value of a type from JSON, as `json.loads` returns it."""
    members = tuple(member for member in get_args(hint) if member is not NoneType)
    if is_dataclass(hint):
        return _class_reader(hint)
    if hint in _KINDS:
        return _scalar_reader(hint)
    if get_origin(hint) is tuple:
        return _list_reader(_reader(members[0]))
    if get_origin(hint) is Mapping:
        return _map_reader(_reader(members[1]))
    read = _reader(members[0]) if len(members) == 1 else _union_reader({member.__name__: member for member in members})
    return (lambda node: None if node is None else read(node)) if NoneType in get_args(hint) else read


def _scalar_reader(kind: type) -> Callable[[Any], Any]:
    def read(node: Any) -> Any:
        if type(node) is not kind:  # a bool is an int
            raise _UnfitError(node, _KINDS[kind])
        return node

    return read


def _list_reader(read_item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(node: Any) -> Any:
        if type(node) is not list:
            raise _UnfitError(node, _KINDS[list])
        return tuple(map(read_item, node))

    return read


def _map_reader(read_value: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(node: Any) -> Any:
        if type(node) is not dict:
            raise _UnfitError(node, _KINDS[dict])
        return {key: read_value(value) for key, value in node.items()}

    return read


def _union_reader(members: Mapping[str, Any]) -> Callable[[Any], Any]:
    def read(node: Any) -> Any:
        member = members.get(str(node.get("is"))) if type(node) is dict else None
        if member is None:
            raise _UnfitError(node, f"one of {', '.join(members)}")
        return _reader(member)(node)  # not looked up before, since a union may be inside itself

    return read


def _class_reader(kind: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    readers = {name: _reader(hints[name]) for name in _names(kind)}
    expected = ["is", *readers] if kind in _NAMED else [*readers]

    def read(node: Any) -> Any:
        if type(node) is not dict:
            raise _UnfitError(node, _KINDS[dict])
        values, name = [], ""
        try:
            for name, read_value in readers.items():
                values.append(read_value(node[name]))
        except _UnfitError as error:
            raise ValueError(f"{kind.__name__}.{name}: {error}") from None
        except KeyError:
            raise ValueError(f"{kind.__name__}.{name} is missing") from None
        if len(node) != len(expected):
            raise ValueError(f"{kind.__name__} has {', '.join(node)}: its members are {', '.join(expected)}")
        return kind(*values)

    return read

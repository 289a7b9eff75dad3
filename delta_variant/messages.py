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
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args, get_origin, get_type_hints, overload

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # which the typing of Python 3.10 lacks

    def dataclass_transform(**_: Any) -> Callable[[type], type]:
        return lambda kind: kind


M = TypeVar("M")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Message:
    """Makes each of its subclasses a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


# ---- what both sides have in common ----------------------------------------------------------------------------------


class Constants(Message):
    version: str
    digest: str
    spark: str
    delta: str
    settings: Mapping[str, str]
    defaults: Mapping[str, str]
    marker: str
    marker_values: tuple[str, ...]
    typed_values: tuple[str, ...]
    nonnull: str
    times: str


# ---- the rules ask Python: a request, and the reply to it ------------------------------------------------------------


class PruneRequest(Message):
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


class PruneReply(Message):
    predicate: FilePredicate | None
    bounds: tuple[Bound, ...]
    members: tuple[Member, ...]
    explanation: Explanation | None


class Explanation(Message):
    predicates: tuple[str, ...]
    reasons: tuple[str, ...]
    verdicts: tuple[Verdict, ...]


class Verdict(Message):
    number: int
    tree: FilePredicate
    bounds: FilePredicate
    member: Indexed | None
    question: FilePredicate
    kind: int | None
    kinds: tuple[str, ...]
    marked: tuple[str, ...]


class ExtremesRequest(Message):
    columns: tuple[tuple[str, ...], ...]
    paths: tuple[TypedPath, ...]


class ExtremesReply(Message):
    bounds: tuple[Bound, ...]


class ProofsRequest(Message):
    columns: tuple[tuple[str, ...], ...]
    paths: tuple[UsedPath, ...]
    uses: tuple[PathUse, ...]


class ProofsReply(Message):
    bounds: tuple[Bound, ...]
    proofs: tuple[Proof, ...]
    reasons: tuple[str, ...]


class GroupsRequest(Message):
    uses: tuple[PathUse, ...]
    groups: tuple[FileGroup, ...]


class GroupsReply(Message):
    groups: tuple[Group, ...]


# ---- a transaction asks Python ---------------------------------------------------------------------------------------


class WriteRequest(Message):
    location: str
    protocol: str
    metadata: str
    columns: str
    sent_columns: str
    partition_by: tuple[str, ...]
    identity_columns: Mapping[str, bool]
    texts: TextColumns | None
    from_pieces: tuple[str, ...]
    late: tuple[str, ...]
    is_call: bool
    settings: Mapping[str, str]
    options: Mapping[str, str]
    compression: str | None
    max_rows: int
    string_prefix: int
    files: int | None
    spark: str
    annotates: bool
    names_unicode: bool
    storage: StorageSettings
    workers: Workers


class ClusterRequest(Message):
    protocol: str
    metadata: str
    columns: str
    keys: str


class ClusterReply(Message):
    keys: tuple[str, ...]
    bytes: int
    reason: str


class TextColumns(Message):
    columns: tuple[str, ...]
    corrupt: str | None
    fails: bool
    allow_duplicate_keys: bool
    validate_unicode: bool


class StorageSettings(Message):
    settings: Mapping[str, str]
    region: str | None


class Workers(Message):
    python: str
    is_local: bool
    versions: tuple[str, ...] | None
    failure: str | None
    has_failed: bool = False


class WriteReply(Message):
    task: str | None = None
    python: str = ""
    announces: str | None = None
    reason: str = ""
    is_failure: bool = False
    probe: str | None = None
    wants_region: bool = False


Request = PruneRequest | ExtremesRequest | ProofsRequest | GroupsRequest | WriteRequest | ClusterRequest
Reply = PruneReply | ExtremesReply | ProofsReply | GroupsReply | WriteReply | ClusterReply

# ---- the filters of a scan -------------------------------------------------------------------------------------------


class Column(Message):
    column: tuple[str, ...]
    name: str


class Get(Message):
    of: Operand
    path: str
    type: str


class CastOf(Message):
    of: Operand
    type: str


class OperandNumber(Message):
    operand: int


class Constant(Message):
    number: int
    type: str
    texts: tuple[str, ...]
    size: int
    has_null: bool


class And(Message):
    parts: tuple[Filter, ...]


class Or(Message):
    parts: tuple[Filter, ...]


class Not(Message):
    part: Filter


class Comparison(Message):
    op: str
    left: Side
    right: Side


class StartsWith(Message):
    value: Side
    prefix: Side


class Like(Message):
    value: Side
    prefix: Constant


class IsNull(Message):
    value: Side


class IsNotNull(Message):
    value: Side


class In(Message):
    value: Side
    list: Side


class Ordinary(Message):
    number: int
    text: str


class Aside(Message):
    pass


class Unknown(Message):
    text: str


Operand = Column | Get | CastOf | Unknown
Side = OperandNumber | Constant | Unknown
Filter = And | Or | Not | Comparison | StartsWith | Like | IsNull | IsNotNull | In | Ordinary | Aside | Unknown

# ---- predicates on bounds --------------------------------------------------------------------------------------------


class AllOf(Message):
    parts: tuple[FilePredicate, ...]


class AnyOf(Message):
    parts: tuple[FilePredicate, ...]


class Compare(Message):
    op: str
    bound: int
    constant: int


class HasPrefix(Message):
    bound: int
    constant: int
    negated: bool


class Between(Message):
    low: int
    high: int
    constants: tuple[int, ...]


class Differs(Message):
    low: int
    high: int
    constants: tuple[int, ...]


class HasValues(Message):
    bound: int


class Indexed(Message):
    member: int
    constants: tuple[int, ...]


class OtherColumns(Message):
    number: int


FilePredicate = AllOf | AnyOf | Compare | HasPrefix | Between | Differs | HasValues | Indexed | OtherColumns


class Bound(Message):
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


class Member(Message):
    path: str
    scale: int


# ---- typed reading ---------------------------------------------------------------------------------------------------


class TypedPath(Message):
    column: tuple[str, ...]
    path: str
    type: str


class UsedPath(Message):
    column: tuple[str, ...]
    name: str
    path: str
    array: int | None = None


class PathUse(Message):
    path: int
    type: str


class Proof(Message):
    steps: tuple[Step, ...]
    leaf: int | None
    range: int | None


class Step(Message):
    key: str | None
    index: int | None


class FileGroup(Message):
    leaves: tuple[Leaf, ...]
    bytes: int


class Leaf(Message):
    type: str
    room: str | None


class Group(Message):
    number: int
    casts: tuple[str, ...]


# ---- Python asks: explain --------------------------------------------------------------------------------------------


class ScanReport(Message):
    table: str
    version: int | None
    total: int | None
    delta: int | None
    bounds: int | None
    skipping: Skipping | None
    reading: Reading | None
    other: str | None
    by: str | None


class Skipping(Message):
    proves: bool
    predicates: tuple[str, ...]
    reasons: tuple[str, ...]
    request: PruneRequest | None
    tally: tuple[Tally, ...] | None


class Tally(Message):
    question: int
    verdict: str
    files: int


class Reading(Message):
    scan: int
    files: int
    logged: int
    typed: int
    paths: tuple[ProvenPath, ...]
    reasons: tuple[str, ...]


class ProvenPath(Message):
    name: str
    path: str
    array: int | None
    files: int


# ---- Python asks: writing --------------------------------------------------------------------------------------------


class WriteReport(Message):
    add: str | None = None
    rows: int = 0
    size: int = 0
    shredded: tuple[str, ...] = ()
    left_plain: bool = False
    malformed: Mapping[str, int] = field(default_factory=dict)
    high_water_marks: Mapping[str, int] = field(default_factory=dict)
    error: Failure | None = None


class Failure(Message):
    name: str
    text: str


class Written(Message):
    files: int
    rows: int
    bytes: int
    shredded: tuple[tuple[str, ...], ...]
    left_plain: int
    malformed: Mapping[str, int]


class Additions(Message):
    identifiers: Mapping[str, int] = field(default_factory=dict)
    known: Mapping[str, int] = field(default_factory=dict)
    again: bool = False
    removal: Removal | None = None
    pieces: str = ""


class Removal(Message):
    column: str | None
    texts: tuple[str, ...]


class Identifiers(Message):
    versions: Mapping[str, int]


class ColumnNames(Message):
    columns: tuple[tuple[str, ...], ...]


class FilePaths(Message):
    paths: tuple[str, ...]


class Candidates(Message):
    column: str
    texts: tuple[str, ...]


class OpenedFiles(Message):
    count: int
    bytes: int
    actions: tuple[str, ...] | None


class Listing(Message):
    files: tuple[SourceFile, ...]
    unmatched: tuple[str, ...]
    schema: str | None
    directories: tuple[str, ...]
    tables: tuple[str, ...]


class SourceFile(Message):
    path: str
    size: int
    modified: int
    named: bool
    values: tuple[str | None, ...] | None


class FoundLoads(Message):
    loads: tuple[Load, ...]
    missing: tuple[str, ...]
    oldest: int


class Load(Message):
    version: int
    fault: str | None
    identifiers: Mapping[str, int]
    files: tuple[str, ...]


# ---- Python asks: analyze --------------------------------------------------------------------------------------------


class AnalysisSize(Message):
    batches: int
    files: int
    bytes: int


class AnalyzedFile(Message):
    file: int
    path: str
    stats: str | None
    tags: Mapping[str, str]


class AnalysisReport(Message):
    file: int
    read: int = 0
    failed: str | None = None
    stats: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    rows: int = 0
    source: str = ""


class AnalyzedBatch(Message):
    files: int
    read: int
    rows: int
    bytes: int
    failed: Mapping[str, str]
    sources: Mapping[str, int]


class Committed(Message):
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

    Raises ValueError, with the class and the field, for a text that is not such a message.

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
        return _checked(hint, lambda node: node)
    if get_origin(hint) is tuple:
        read_item = _reader(members[0])
        return _checked(list, lambda node: tuple(map(read_item, node)))
    if get_origin(hint) is Mapping:
        read_value = _reader(members[1])
        return _checked(dict, lambda node: {key: read_value(value) for key, value in node.items()})
    read = _reader(members[0]) if len(members) == 1 else _union_reader({member.__name__: member for member in members})
    return (lambda node: None if node is None else read(node)) if NoneType in get_args(hint) else read


def _checked(kind: type, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function for nodes of one type of JSON, which it checks."""

    def checked(node: Any) -> Any:
        if type(node) is not kind:  # a bool is an int
            raise _UnfitError(node, _KINDS[kind])
        return read(node)

    return checked


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

    return _checked(dict, read)

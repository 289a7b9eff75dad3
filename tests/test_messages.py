"""The messages between Python and the JVM: their JSON, and that both sides declare the same ones."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

import delta_variant
from delta_variant import messages
from delta_variant.messages import AllOf, ClusterReply, Compare, Failure, Like, ScanReport, WriteReport, decoded, encoded

CLASSES = [one for one in vars(messages).values() if is_dataclass(one)]
SCALA = Path(delta_variant.__file__).with_name("scala") / "Messages.scala"
SIMPLE = {str: st.text(), int: st.integers(-(2**63), 2**63 - 1), bool: st.booleans(), NoneType: st.none()}


@cache
def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of the types that fields have."""
    inner = get_args(hint)
    if hint in SIMPLE:
        return SIMPLE[hint]
    if get_origin(hint) is tuple:
        return st.lists(values(inner[0]), max_size=2).map(tuple)
    if get_origin(hint) is Mapping:
        return st.dictionaries(values(inner[0]), values(inner[1]), max_size=2)
    if inner:
        return st.one_of([values(one) for one in inner])
    return st.deferred(lambda: st.builds(hint, **{name: values(kind) for name, kind in get_type_hints(hint).items()}))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_messages_survive(kind, data):
    """Every message is the same after it was sent, also in a list, and if its receiver expects any class of its union."""
    message = data.draw(values(kind))
    assert decoded(kind, encoded(message)) == message
    assert decoded(tuple[kind, ...], encoded((message, message))) == (message, message)
    for union in messages.UNIONS:
        if kind in get_args(union):
            assert decoded(union, encoded(message)) == message
            assert json.loads(encoded(message))["is"] == kind.__name__


@pytest.mark.parametrize(
    ("kind", "text", "error"),
    [
        (ClusterReply, "", "ClusterReply: no JSON"),
        (ClusterReply, "[]", r"ClusterReply: \[\] is not an object"),
        (ClusterReply, '{"keys": []}', "ClusterReply.bytes is missing"),
        (ClusterReply, '{"keys": [], "bytes": true, "reason": ""}', "ClusterReply.bytes: true is not an integer"),
        (ClusterReply, '{"keys": [], "bytes": 1.0, "reason": ""}', "ClusterReply.bytes: 1.0 is not an integer"),
        (ClusterReply, '{"keys": [], "bytes": null, "reason": ""}', "ClusterReply.bytes: null is not an integer"),
        (
            ClusterReply,
            '{"keys": [], "bytes": 0, "reason": "", "more": 0}',
            "ClusterReply has keys, .*, more: its members",
        ),
        (tuple[ClusterReply, ...], "{}", "tuple: {} is not a list"),
        (tuple[ClusterReply, ...], "[null]", "null is not an object"),
        (messages.FilePredicate, '{"is": "AllOf", "parts": [{"is": "Filter"}]}', "AllOf.parts: .* is not one of AllOf, AnyOf"),
        (
            messages.FilePredicate,
            '{"is": "Indexed", "member": 0, "constants": ["1"]}',
            'Indexed.constants: "1" is not an integer',
        ),
        (messages.FilePredicate, '{"is": ["AllOf"], "parts": []}', "is not one of"),
        (messages.FilePredicate, '"AllOf"', "is not one of"),
        (Like, '{"is": "Like", "value": {"is": "Unknown", "text": ""}, "prefix": null}', "Like.prefix: null is not an object"),
        (WriteReport, encoded(WriteReport()).replace("{}", "[]"), r"WriteReport.malformed: \[\] is not an object"),
    ],
)
def test_malformed_texts(kind, text, error):
    """A text that is not the message expected is refused, and the error names the class and the field."""
    with pytest.raises(ValueError, match=error):
        decoded(kind, text)


JSON = st.recursive(SIMPLE[str] | SIMPLE[int] | SIMPLE[bool], lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(JSON)
def test_any_other_json_is_an_error(node):
    """JSON that is no message raises ValueError, and no other error."""
    for kind in (messages.Request, messages.FilePredicate, WriteReport, tuple[ScanReport, ...]):
        if node != []:
            with pytest.raises(ValueError, match=r"is not|is missing"):
                decoded(kind, json.dumps(node))


def test_what_is_no_message():
    """What no message can hold is not sent."""
    with pytest.raises(TypeError):
        encoded(WriteReport(add=object()))


def test_defaults():
    """A report of an error has nothing else; all its members are sent."""
    assert set(json.loads(encoded(WriteReport(error=Failure("E", "why"))))) == {one.name for one in fields(WriteReport)}
    assert encoded(AllOf((Compare("<", 0, 1),))) == '{"is":"AllOf","parts":[{"is":"Compare","op":"<","bound":0,"constant":1}]}'


# ---- the other side --------------------------------------------------------------------------------------------------


def python_type(scala: str) -> str:
    """The Python annotation of a Scala type."""
    if found := re.fullmatch(r"(Seq|Option|Map)\[(?:String, )?(.*)\]", scala):
        form = {"Seq": "tuple[{}, ...]", "Option": "{} | None", "Map": "Mapping[str, {}]"}[found[1]]
        return form.format(python_type(found[2]))
    return {"Int": "int", "Long": "int", "Boolean": "bool", "String": "str"}.get(scala, scala)


def test_both_sides_declare_the_same_messages():
    """Scala and Python have the same classes, in the same order, with the same fields, types and unions."""
    source = re.sub(r"/\*.*?\*/|//[^\n]*|@JsonDeserialize\([^()]*\) ", "", SCALA.read_text(), flags=re.DOTALL)
    declared: dict[str, list[tuple[str, str]]] = {}
    unions: dict[str, list[str]] = {name: [] for name in re.findall(r"sealed trait (\w+)", source)}
    for name, listed, parents in re.findall(r"case class (\w+)\(([^()]*)\)(?:\s+extends ([^\n]*))?", source):
        declared[name] = []
        for parameter in re.split(r",\s+(?=[`\w]+: )", listed.strip()) if listed.strip() else []:
            field, kind = parameter.replace("`", "").split(": ")
            snake = re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", field)
            declared[name].append((snake, python_type(kind)))
        for parent in parents.split(" with ") if parents else []:
            unions[parent.partition("[")[0].strip()].append(name)
    assert declared == {one.__name__: [(field.name, field.type) for field in fields(one)] for one in CLASSES}
    assert list(declared) == [one.__name__ for one in CLASSES]
    assert unions == {name: [one.__name__ for one in get_args(getattr(messages, name))] for name in unions}
    assert tuple(getattr(messages, name) for name in unions) == messages.UNIONS

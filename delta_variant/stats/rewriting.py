"""The JSON of an Add action's statistics with other bounds for some columns; everything else is kept byte for byte.

In: the text of `stats`, and JSON texts by column. Out: the text with these in minValues, maxValues or nullCount. Source: Delta
PROTOCOL, "Per-file Statistics".

Invariant: texts of other members are copied, so that numbers keep their digits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from delta_variant.errors import DeltaVariantError

Names = tuple[str, ...]

_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\n\r]*")


def json_object(members: Mapping[str, str]) -> str:
    """A JSON object of members whose values are JSON texts."""
    return _joined((json.dumps(name, ensure_ascii=False), text) for name, text in members.items())


def _joined(members: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{name}:{text}" for name, text in members) + "}"


def _members(text: str | None) -> dict[str, tuple[str, str]]:
    """The members of a JSON object, by name: the text of the name and of the value. Nothing and null are empty objects."""
    if text is None or text.strip() == "null":
        return {}
    found: dict[str, tuple[str, str]] = {}
    try:
        at = _skip(text, 0, "{")
        while text[at] != "}":
            start = _skip(text, at, "," if found else "")
            name, end = _DECODER.raw_decode(text, start)
            value = _skip(text, end, ":")
            _, at = _DECODER.raw_decode(text, value)
            found[name] = text[start:end], text[value:at]
            at = _skip(text, at, "")
    except (ValueError, IndexError):
        raise DeltaVariantError(f"the statistics in the log are not a JSON object: {text[:100]}") from None
    return found


def _skip(text: str, at: int, symbol: str) -> int:
    """The position behind blanks, a symbol and blanks."""
    at = _BLANK.match(text, at).end()  # type: ignore[union-attr]  # it matches everywhere
    if not text.startswith(symbol, at):
        raise ValueError(symbol)
    return _BLANK.match(text, at + len(symbol)).end()  # type: ignore[union-attr]


def member(text: str | None, names: Names) -> str | None:
    """The text at a path of names; None if there is nothing. Raises DeltaVariantError for text that is not JSON."""
    for name in names:
        text = _members(text).get(name, (None, None))[1]
    return text


def replaced(text: str | None, changes: Mapping[Names, str | None]) -> str:
    """The JSON object with some members replaced, added at its end, or removed (None).

    Paths lead through objects. Raises DeltaVariantError for text that is not JSON.
    """
    found = _members(text)
    inner: dict[str, dict[Names, str | None]] = {}
    for names, new in changes.items():
        if len(names) > 1:
            inner.setdefault(names[0], {})[names[1:]] = new
        elif new is None:
            found.pop(names[0], None)
        else:
            found[names[0]] = found.get(names[0], (json.dumps(names[0], ensure_ascii=False),))[0], new
    for name, below in inner.items():
        if name in found or any(new is not None for new in below.values()):
            key, old = found.get(name, (json.dumps(name, ensure_ascii=False), None))
            found[name] = key, replaced(old, below)
    return _joined(found.values())

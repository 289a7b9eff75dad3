"""Paths into a Variant: the keys of nested objects ↔ the texts other programs use for them.

Two syntaxes: RFC 9535 normalized paths, which key the bounds in the Delta log (`$['actor']['id']`, Delta variantShredding,
"Statistics for Variant Columns"), and the path argument of Spark's `variant_get` (`$.actor.id`, `$['actor']`, `$.tags[0]`).
A key is a str, an array index an int. `quoted` is for names outside a Variant.

Invariant: `parse_normalized(normalized(keys)) == keys` for all keys.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from delta_variant.errors import InvalidPathError

_ESCAPES = {"'": "\\'", "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_UNESCAPES = {text[1]: char for char, text in _ESCAPES.items()}
_NORMALIZED_KEY = re.compile(r"\['((?:[^'\\\x00-\x1f]|\\(?:['\\btnfr]|u00[01][0-9a-f]))*)'\]")
_ESCAPE = re.compile(r"\\(u00[01][0-9a-f]|.)", re.DOTALL)
# Spark takes a dotted key up to the next dot or bracket, and a quoted key up to the next quote of its kind: no escapes.
_SPARK_STEP = re.compile(r"\.(?P<dotted>[^.\[]+)|\[(?P<index>[0-9]+)\]|\['(?P<single>[^']*)'\]|\[\"(?P<double>[^\"]*)\"\]")
_PLAIN = re.compile(r"[\w$-]+")
_MAX_INDEX = 2**31 - 1


def normalized(keys: Sequence[str]) -> str:
    """The RFC 9535 normalized path (section 2.7) of nested object keys; `$` for the root."""
    return "$" + "".join(f"['{''.join(map(_escape, key))}']" for key in keys)


def _escape(char: str) -> str:
    return _ESCAPES.get(char) or (f"\\u{ord(char):04x}" if char < " " else char)


def parse_normalized(text: str) -> tuple[str, ...]:
    """The keys of a normalized path; raises InvalidPathError for any other text."""
    keys, at = [], 1
    if text[:1] != "$":
        raise InvalidPathError(f"{text!r} is not a normalized path: it must start with $")
    while at < len(text):
        step = _NORMALIZED_KEY.match(text, at)
        if step is None:
            raise InvalidPathError(f"{text!r} is not a normalized path: write each key as ['key'] (at character {at})")
        keys.append(_ESCAPE.sub(_unescape, text[at + 2 : step.end() - 2]))
        at = step.end()
    return tuple(keys)


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else _UNESCAPES[code]


def step(key: str) -> str:
    """One more key of a `variant_get` path: dotted, or in the quotes that the key does not hold."""
    return f".{key}" if _PLAIN.fullmatch(key) else f"['{key}']" if "'" not in key else f'["{key}"]'


def parse_variant_path(text: str) -> tuple[str | int, ...]:
    """The keys and indexes of a `variant_get` path; raises InvalidPathError for text that Spark refuses."""
    steps: list[str | int] = []
    at = 1
    if text[:1] != "$":
        raise InvalidPathError(f"{text!r} is not a Variant path: it must start with $")
    while at < len(text):
        step = _SPARK_STEP.match(text, at)
        kind = step.lastgroup if step else None
        if step is None or kind is None or (kind == "index" and int(step[kind]) > _MAX_INDEX):
            raise InvalidPathError(f"{text!r} is not a Variant path: expected .key, ['key'] or [0] at character {at}")
        steps.append(int(step[kind]) if kind == "index" else step[kind])
        at = step.end()
    return tuple(steps)


def quoted(name: str) -> str:
    """A name as Spark's SQL takes every name: in backquotes, doubled inside."""
    return f"`{name.replace('`', '``')}`"

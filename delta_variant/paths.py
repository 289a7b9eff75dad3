"""Names of columns, and paths into a Variant: keys ↔ the text that users and other programs write.

Paths have two syntaxes: RFC 9535 normalized paths, which key the bounds in the Delta log (`$['actor']['id']`, Delta
variantShredding, "Statistics for Variant Columns"), and the path argument of Spark's `variant_get` (`$.actor.id`, `$['actor']`,
`$.tags[0]`). An object key is a str, an array index an int. Columns are written as in SQL: `v`, `s.w`, `` `a.b`.c ``; a column
and a path into it have a colon between them: `v:actor.id`. The path behind a colon has the forms of `variant_get` without the
`$`, and keys in backquotes, as in Spark SQL. `scan` takes Spark's SQL alone: its lexical rules are in `queries.lexing`.

Invariants: `parse_normalized(normalized(keys)) == keys` for all keys, and `parse_column(dotted(column)) == column` for all
names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from delta_variant.errors import InvalidPathError, InvalidSchemaError

ColumnPath = tuple[str, ...]
"""The name of a column. If it is in a struct, these are the names that lead to it: `("s", "w")`."""

Keys = tuple["str | int", ...]
"""The keys and indexes of a path into a Variant."""

ELEMENT, MAP_KEY, MAP_VALUE = ("list", "element"), ("key_value", "key"), ("key_value", "value")
"""What Parquet adds to the path of a column: for the elements of a list, for the keys and the values of a map."""

_ESCAPES = {"'": "\\'", "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_UNESCAPES = {text[1]: char for char, text in _ESCAPES.items()}
_NORMALIZED_KEY = re.compile(r"\['((?:[^'\\\x00-\x1f]|\\(?:['\\btnfr]|u00[01][0-9a-f]))*)'\]")
_ESCAPE = re.compile(r"\\(u00[01][0-9a-f]|.)", re.DOTALL)
# In Spark a dotted key ends at the next dot or bracket, and a quoted key at the next quote of the same kind: no escapes.
_SPARK_STEP = re.compile(r"\.(?P<dotted>[^.\[]+)|\[(?P<index>[0-9]+)\]|\['(?P<single>[^']*)'\]|\[\"(?P<double>[^\"]*)\"\]")
_PLAIN = re.compile(r"[\w$-]+")
_PLAIN_COLUMN = re.compile(r"[\w-]+")
_LISTED = re.compile(r"""((?:\['[^']*'\]|\["[^"]*"\]|`[^`]*`|[^,])+)(?:,|$)""")
_WRITTEN_STEP = re.compile(rf"\.`(?P<backquoted>(?:[^`]|``)+)`(?=[.\[]|\Z)|(?!\.`)(?:{_SPARK_STEP.pattern})")
_COLUMN_STEP = re.compile(r"(?:`((?:[^`]|``)+)`|([^`.]+))(\.|$)")
MAX_INDEX = 2**31 - 1
"""The largest index of a path in Spark."""


def normalized(keys: Sequence[str]) -> str:
    """The RFC 9535 normalized path (section 2.7) of nested object keys; `$` for the root.

    >>> normalized(["actor", "id"])
    "$['actor']['id']"
    """
    return "$" + "".join(f"['{''.join(map(_escape, key))}']" for key in keys)


def _escape(char: str) -> str:
    return _ESCAPES.get(char) or (f"\\u{ord(char):04x}" if char < " " else char)


def parse_normalized(text: str) -> tuple[str, ...]:
    """The keys of a normalized path. Raises InvalidPathError for any other text.

    >>> parse_normalized("$['actor']['id']")
    ('actor', 'id')
    """
    keys, at = [], 1
    if text[:1] != "$":
        raise InvalidPathError(f"{text!r} is not a normalized path: it must start with $")
    while at < len(text):
        step = _NORMALIZED_KEY.match(text, at)
        if step is None:
            raise InvalidPathError(f"{text!r} is not a normalized path at character {at}: write each key as ['key']")
        keys.append(_ESCAPE.sub(_unescape, text[at + 2 : step.end() - 2]))
        at = step.end()
    return tuple(keys)


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else _UNESCAPES[code]


def step(key: str) -> str:
    """The step for a key in a `variant_get` path: dotted if possible, else in quotes that the key does not contain.

    >>> step("id"), step("two words")
    ('.id', "['two words']")
    """
    return f".{key}" if _PLAIN.fullmatch(key) else f"['{key}']" if "'" not in key else f'["{key}"]'


def steps(keys: Sequence[str | int | None]) -> str:
    """The path behind a colon, as users write it; `$` for the root. None stands for every element of an array.

    >>> steps(["actor", "two words", 0]), steps(["items", None, "id"]), steps([])
    ("actor['two words'][0]", 'items[*].id', '$')
    """
    written = (step(key) if isinstance(key, str) else f"[{'*' if key is None else key}]" for key in keys)
    return "".join(written).removeprefix(".") or "$"


def parse_variant_path(text: str) -> Keys:
    """The keys and indexes of a `variant_get` path. Raises InvalidPathError for text that Spark refuses.

    >>> parse_variant_path("$.tags[0]['two words']")
    ('tags', 0, 'two words')
    """
    keys: list[str | int] = []
    at = 1
    if text[:1] != "$":
        raise InvalidPathError(f"{text!r} is not a Variant path: it must start with $")
    while at < len(text):
        step = _SPARK_STEP.match(text, at)
        syntax = step.lastgroup if step else None
        if step is None or syntax is None or (syntax == "index" and int(step[syntax]) > MAX_INDEX):
            raise InvalidPathError(f"{text!r} is not a Variant path at character {at}: write each step as .key, ['key'] or [0]")
        keys.append(int(step[syntax]) if syntax == "index" else step[syntax])
        at = step.end()
    return tuple(keys)


def object_keys(steps: Sequence[str | int]) -> tuple[str, ...] | None:
    """The keys of a path through objects only; None if it goes through an array, which has no bounds.

    >>> object_keys(["actor", "id"]), object_keys(["tags", 0])
    (('actor', 'id'), None)
    """
    keys = tuple(step for step in steps if isinstance(step, str))
    return keys if len(keys) == len(steps) else None


def rooted(path: str) -> str:
    """A `variant_get` path with its `$`, which users may omit; empty text is the root.

    Without the `$`, a key may be in backquotes, as in Spark's SQL. Raises InvalidPathError for text that is not a path, for one
    with a type behind it, and for a key in backquotes with a dot or a bracket, which is more than one key in Spark.

    >>> rooted("actor.id"), rooted("[0]"), rooted(""), rooted("`two words`.id")
    ('$.actor.id', '$[0]', '$', '$.two words.id')
    """
    if path.startswith("$"):
        return path
    text = path if path[:1] in ("", "[") else f".{path}"
    whole, at = "$", 0
    while step := _WRITTEN_STEP.match(text, at):
        key = step["backquoted"]
        if "::" in (step["dotted"] or ""):
            raise InvalidPathError(f"{path!r} has a type: leave out all from :: on, and write a key with colons as ['a::b']")
        whole += step[0] if key is None else f".{one_step(key.replace('``', '`'), path)}"
        at = step.end()
    if at < len(text):
        raise InvalidPathError(f"{path!r} is not a Variant path: write each step as .key, .`odd key`, ['key'] or [0]")
    return whole


def one_step(key: str, text: str) -> str:
    """A key that was in backquotes. Raises InvalidPathError if it is more than one key in Spark, which drops the backquotes.

    text: the path that the key is in, for messages.

    >>> one_step("a b", "v:`a b`")
    'a b'
    """
    if "." in key or "[" in key:
        raise InvalidPathError(
            f"{text!r} is not a Variant path: `{key}` is more than one step in Spark: "
            "write a key with such characters as ['key']"
        )
    return key


def parse_column(text: str) -> ColumnPath:
    """The names in text like `a.b`, where odd names are in backquotes. Raises InvalidSchemaError for any other text.

    >>> parse_column("s.`a.b`")
    ('s', 'a.b')
    """
    names: list[str] = []
    at = 0
    while at < len(text) or not names:
        match = _COLUMN_STEP.match(text, at)
        if match is None or (match[3] and match.end() == len(text)):
            raise InvalidSchemaError(f"{text!r} is not the name of a column: write a.b, with odd names in backquotes")
        names.append(match[1].replace("``", "`") if match[1] else match[2])
        at = match.end()
    return tuple(names)


def parse_column_path(text: str) -> tuple[ColumnPath, str | None]:
    """The column and the `variant_get` path in text like `v:actor.id`.

    The path is None if the text names a column only. Its `$` may be omitted (`rooted`). A colon in a column's name needs
    backquotes.
    Raises InvalidSchemaError if the text before the colon is not a column, InvalidPathError if the text after it is not a path.

    >>> parse_column_path("s.w:actor.id")
    (('s', 'w'), '$.actor.id')
    """
    in_backquotes = False
    for at, char in enumerate(text):
        in_backquotes ^= char == "`"
        if char == ":" and not in_backquotes:
            path = rooted(text[at + 1 :])
            parse_variant_path(path)
            return parse_column(text[:at]), path
    return parse_column(text), None


def parse_bounded_path(text: str) -> tuple[ColumnPath, tuple[str, ...]]:
    """The column and the keys in text like `v:actor.id`, for a path that can have bounds.

    Raises what `parse_column_path` raises, and InvalidPathError for a column alone and for a path through an array.

    >>> parse_bounded_path("v:actor.id")
    (('v',), ('actor', 'id'))
    """
    column, variant_path = parse_column_path(text)
    if variant_path is None:
        raise InvalidPathError(f"{text!r} is not a column and a path: write it as v:actor.id")
    keys = object_keys(parse_variant_path(variant_path))
    if keys is None:
        raise InvalidPathError(f"{text!r} goes through an array, which has no bounds: choose a path through objects only")
    return column, keys


def listed(text: str) -> list[str]:
    """The items of a list in a table property. Commas in quoted keys (`v['a,b']`) and backquotes belong to an item.

    >>> listed("v:actor.id, `a,b`")
    ['v:actor.id', '`a,b`']
    """
    return [item.strip() for item in _LISTED.findall(text) if item.strip()]


def dotted(column: Sequence[str]) -> str:
    """The name of a column as users write it.

    >>> dotted(("s", "a.b"))
    's.`a.b`'
    """
    return ".".join(name if _PLAIN_COLUMN.fullmatch(name) else quoted(name) for name in column)


def quoted(name: str) -> str:
    """A name in the form that Spark's SQL accepts for every name: in backquotes, with those inside doubled.

    >>> quoted("a`b")
    '`a``b`'
    """
    return f"`{name.replace('`', '``')}`"


def literal(text: str) -> str:
    r"""A string literal of Spark's SQL.

    >>> print(literal("it's"))
    'it\'s'
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"

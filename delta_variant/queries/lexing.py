r"""The text of a predicate or of a column, by Spark's lexical rules → a text that every dialect of SQL reads alike.

Spark's rules (SqlBaseLexer.g4, the rule semiStructuredExtractionPath of SqlBaseParser.g4, unescapeSQLString) differ from
sqlglot's where it matters which rows are found: in `v:['a\b']` a backslash is a character of the key, in `'a\b'` it begins
an escape. So the texts of strings, names and paths are read here, and sqlglot gets:

- for a path, one key, `variant_path_0`, `variant_path_1` …: its steps are in `Text.paths`;
- for a string, or several side by side, one string in single quotes, with a backslash before quotes and backslashes;
- for a name, the name in backquotes; words of the syntax, of types and of functions stay as they are;
- for a comment, a blank.

What Spark cannot read is an error here. Whether the words make a predicate is a question for sqlglot and its caller.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from delta_variant.errors import InvalidPathError, UnsupportedFeatureError
from delta_variant.paths import MAX_INDEX, Keys, literal, one_step, quoted

PLACEHOLDER = "variant_path_"
_BLANKS = r"[ \t\n\f\r\v\xa0\u1680\u2000-\u200a\u2028\u202f\u205f\u3000]+"
_DECIMAL = r"(?:[0-9]+\.[0-9]*|\.[0-9]+)"
_TOKENS = re.compile(
    rf"""(?P<blank>{_BLANKS}|--(?:\\\n|[^\r\n])*\r?\n?)
    |(?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|r'[^']*'|r"[^"]*")
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<number>{_DECIMAL}(?:e[+-]?[0-9]+)?(?:[fd]|bd)?(?![a-z0-9_])|[0-9]+(?:e[+-]?[0-9]+)?(?:[lsyfd]|bd)?(?![a-z0-9_]))
    |(?P<word>[a-z0-9_]+)
    |(?P<symbol>::|<=>|<>|<=|>=|==|!=|!>|!<|\|\||->|[-=<>:.,()\[\]!+*/%&|^~])""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE | re.ASCII,
)
_COMMENT = re.compile(r"/\*(?!\+)|\*/")  # /*+ begins a hint
_SAME = {"==": "=", "!=": "<>", "!>": "<=", "!<": ">="}
TYPES = frozenset((
    "boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "float", "real", "double", "date",
    "time", "timestamp", "timestamp_ntz", "timestamp_ltz", "string", "char", "character", "varchar", "binary", "decimal",
    "dec", "numeric", "void", "interval", "variant", "array", "struct", "map",
))  # fmt: skip
"""The words that a type begins with in Spark."""
_LITERALS = frozenset(("date", "time", "timestamp", "timestamp_ntz", "timestamp_ltz", "interval", "x"))
_SYNTAX = frozenset((
    "all", "and", "any", "as", "between", "case", "cast", "collate", "current_catalog", "current_database", "current_date",
    "current_schema", "current_time", "current_timestamp", "current_user", "distinct", "div", "else", "end", "escape",
    "except", "exists", "false", "from", "ilike", "in", "is", "like", "localtimestamp", "not", "null", "or", "regexp",
    "rlike", "select", "session_user", "some", "then", "true", "try_cast", "union", "user", "when", "where",
))  # fmt: skip
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_WHITE = " \t\n\x0b\f\r"
SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text. kind: string, quoted, number, word, symbol or path."""

    kind: str
    text: str
    at: int
    """The character where it begins."""
    end: int


@dataclass(frozen=True, slots=True)
class Text:
    """A text as sqlglot reads it, and the paths in it, by their number: how they are spelled, and their steps."""

    sql: str
    paths: Sequence[tuple[str, Keys]]


def tokens(text: str) -> list[Token]:
    """The tokens of a text, without blanks and comments. Raises UnsupportedFeatureError for characters that are none.

    >>> [token.text for token in tokens("v:['x::y'] :: int -- what")]
    ['v', ':', '[', "'x::y'", ']', '::', 'int']
    """
    found: list[Token] = []
    at = 0
    while at < len(text):
        if text.startswith("/*", at) and not text.startswith("/*+", at):
            at = _comment_end(text, at)
            continue
        match = _TOKENS.match(text, at)
        if match is None or match.lastgroup is None:
            raise UnsupportedFeatureError(f"{text!r} cannot be parsed as SQL of Spark: {_unread(text, at)}")
        if match.lastgroup != "blank":
            found.append(Token(match.lastgroup, match[0], at, match.end()))
        at = match.end()
    return found


def _comment_end(text: str, start: int) -> int:
    depth = 0
    for match in _COMMENT.finditer(text, start):
        depth += 1 if match[0] == "/*" else -1
        if not depth:
            return match.end()
    raise UnsupportedFeatureError(f"{text!r} cannot be parsed as SQL of Spark: the comment at character {start} has no end")


def _unread(text: str, at: int) -> str:
    if text[at] in "'\"`":
        return f"the {text[at]} at character {at} is never closed"
    if text[at].isalpha():
        return f"{text[at]!r} at character {at} is not a letter of a name in Spark, unless the name is in backquotes"
    return f"{text[at]!r} at character {at} has no meaning"


def read(text: str) -> Text:
    """A text for sqlglot. Raises UnsupportedFeatureError for what Spark cannot read, InvalidPathError for a path that is none.

    >>> read("v:a.`b c`::int = 1").sql
    '`v` : variant_path_0 :: int = 1'
    """
    paths: list[tuple[str, Keys]] = []
    found = tokens(text)
    rest = [*found, *[Token("end", "", len(text), len(text))] * 3]
    kept: list[Token] = []
    at = 0
    while at < len(found):
        kept.append(rest[at])
        at += 1
        if kept[-1].text == ":":
            if len(kept) < 2 or (kept[-2].kind not in ("word", "quoted") and kept[-2].text not in (")", "]")):
                raise UnsupportedFeatureError(f"{text!r} has a colon without a column before it, at character {kept[-1].at}")
            steps, end = _path(text, rest, at)
            kept.append(Token("path", f"{PLACEHOLDER}{len(paths)}", rest[at].at, rest[end - 1].end))
            paths.append((text[kept[-1].at : kept[-1].end], steps))
            at = end
    return Text(" ".join(_written(text, kept)), paths)


# ---- paths ------------------------------------------------------------------------------------------------------------


def _path(text: str, rest: Sequence[Token], at: int) -> tuple[Keys, int]:
    """The steps of the path that begins at a token, and the number of the first token behind it."""
    steps: list[str | int] = []
    while True:
        if rest[at].text == "[":
            steps.append(_subscript(text, rest[at + 1]))
            if rest[at + 2].text != "]":
                raise _invalid(text, rest[at + 2])
            at += 3
        else:
            steps.append(_name(text, rest[at]))
            at += 1
        if rest[at].text == "." and rest[at + 1].text == "[":
            raise _invalid(text, rest[at + 1])
        if rest[at].text in (".", ":"):
            at += 1
        elif rest[at].text != "[":
            return tuple(steps), at


def _subscript(text: str, token: Token) -> str | int:
    """The step in brackets: an index, or a key in single quotes, in which no character is an escape."""
    if token.kind == "number" and token.text.isdigit() and int(token.text) <= MAX_INDEX:
        return int(token.text)
    key = token.text[1:-1]
    if token.kind != "string" or token.text[0] != "'" or "'" in key:
        raise _invalid(text, token)
    return _visible(text, token, key)


def _name(text: str, token: Token) -> str:
    if token.kind == "word":
        return token.text
    if token.kind != "quoted":
        raise _invalid(text, token)
    key = one_step(token.text[1:-1].replace("``", "`"), text)
    if key[0:1] == "*" and key != "*":
        raise _invalid(text, token, f"Spark takes no key that begins with * here: write ['{key}']")
    return _visible(text, token, key)


def _visible(text: str, token: Token, key: str) -> str:
    if SURROGATE.search(key):
        raise _invalid(text, token, "it has half a surrogate, which no key has")
    if not key.strip(_WHITE):
        raise _invalid(text, token, "Spark takes a key of blanks, or of nothing, only in the path of variant_get")
    return key


def _invalid(text: str, token: Token, why: str = "write each step as .key, .`odd key`, ['key'] or [0]") -> InvalidPathError:
    return InvalidPathError(f"{text!r} is not a Variant path at character {token.at}: {why}")


# ---- strings and names ------------------------------------------------------------------------------------------------


def _written(text: str, kept: Sequence[Token]) -> list[str]:
    """The tokens as sqlglot gets them."""
    written: list[str] = []
    strings = ""
    for number, token in enumerate(kept):
        before, follows = kept[number - 1] if number else None, kept[number + 1] if number + 1 < len(kept) else None
        if token.kind == "string":
            strings += unescaped(token.text)
            if follows is None or follows.kind != "string":
                if before is not None and before.text.lower() == "x":  # X'1F' is one token
                    strings = written.pop() + literal(strings)
                else:
                    strings = literal(strings)
                written.append(strings)
                strings = ""
            elif before is not None and before.text.lower() in (*_LITERALS, "escape"):
                raise UnsupportedFeatureError(f"{text!r} has two strings side by side after {before.text}: write one")
        elif token.kind in ("word", "quoted") and _leads_type(kept[max(number - 2, 0) : number]):
            if token.text.lower() not in TYPES:
                raise UnsupportedFeatureError(f"{text!r}: {token.text} is not a type of Spark")
            written.append(token.text)
        elif token.kind == "word":
            if follows is not None and (token.text + follows.text).lower() == "notnull" and _ends_operand(before):
                raise UnsupportedFeatureError(f"{text!r} has NOT NULL after a value: write IS NOT NULL")
            written.append(_word(before, token, follows))
        else:
            written.append(_SAME.get(token.text, token.text))
    return written


def _ends_operand(token: Token | None) -> bool:
    """Whether a value can end here. After one, sqlglot takes NOT NULL for IS NOT NULL, and Spark does not."""
    return token is not None and (token.kind != "symbol" or token.text in (")", "]")) and token.text.lower() not in _SYNTAX


def _leads_type(before: Sequence[Token]) -> bool:
    """Whether a type follows: after `::`, and after the AS of a cast, which is not a field `s.as`."""
    last = before[-1].text.lower() if before else ""
    return last == "::" or (last == "as" and before[0].text != ".")


def _word(before: Token | None, token: Token, follows: Token | None) -> str:
    """A word as it stands if it belongs to the syntax, and a name in backquotes."""
    name, after = token.text.lower(), follows.text if follows else ""
    if (before is not None and before.text == ".") or after in (".", ":"):
        return quoted(token.text)
    is_literal = follows is not None and follows.kind == "string" and name in _LITERALS
    return token.text if name in _SYNTAX or after == "(" or is_literal else quoted(token.text)


def unescaped(literal: str) -> str:
    r"""The text of a string literal of Spark 4: `r'…'` as it stands, else with escapes and doubled quotes.

    >>> unescaped(r"'it''s a \u0041\101\n'") == "it's a AA" + chr(10)
    True
    """
    if literal[0] in "rR":
        return literal[2:-1]
    escapes = rf"{literal[0]}{literal[0]}|\\(?:u([0-9A-Fa-f]{{4}})|U([0-9A-Fa-f]{{8}})|([01][0-7]{{2}})|(.))"
    text = re.sub(escapes, _character, literal[1:-1], flags=re.DOTALL)
    if SURROGATE.search(text):  # in pairs they are one character; alone, Java's UTF-8 has a question mark
        text = SURROGATE.sub("?", text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass"))
    return text


def _character(match: re.Match[str]) -> str:
    short, long, octal, other = match.groups()
    if long:
        point = int(long, 16)
        if point < 0x10000:
            return chr(point)
        point -= 0x10000
        return "".join(chr(unit & 0xFFFF) for unit in (0xD800 + point // 0x400, 0xDC00 + point % 0x400))
    if short or octal:
        return chr(int(short, 16) if short else int(octal, 8))
    return _ESCAPES.get(other, other) if other else match[0][0]

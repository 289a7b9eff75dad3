"""Texts of `scan`: strings, names and paths mean what they mean in Spark, and what Spark's parser refuses is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import delta_variant as dv
from delta_variant import errors, jvm
from delta_variant.queries import casts, fields
from delta_variant.queries.expressions import Column, Get, Literal
from delta_variant.queries.sql import parse_any, parse_column_text
from tests.by_hand import VARIANTS as PROTOCOL
from tests.by_hand import by_hand
from tests.strategies import column
from tests.support import length, share

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.interpreted
TEXTS = length("SCAN_TEXTS", 400, 20000)
UTC = casts.zone("UTC")
VARIANTS = ("v", "A b", "é", "date", "order", "1a", "variant_path_0", "x`y", "is", "in")


def field(name: str, kind: fields.Kind) -> fields.Field:
    return fields.Field(name, name, None, kind)


INNER = fields.Struct((field("w", fields.Variant()), field("in", fields.Variant()), field("n", pa.int32())))
SCHEMA = fields.Struct((*(field(name, fields.Variant()) for name in VARIANTS), field("s", INNER), field("n", pa.int32())))

PATHS = [
    ("v:a.b", ("a", "b")), ("v : a . b [ 0 ]", ("a", "b", 0)), ("v:/* : /* ' */ */a -- b\n.b", ("a", "b")),
    (r"v:['a\b']", (r"a\b",)), (r"v:['n\n']['u\u0041']", (r"n\n", r"u\u0041")), (r"v:['C:\\temp']", (r"C:\\temp",)),
    (r"v:`a\b`", (r"a\b",)), ("v:`a``b`.`it's`", ("a`b", "it's")), ("v:['a.b[0]']", ("a.b[0]",)), ("v:['\"`::--']",
    ('"`::--',)),
    ("v:select.from", ("select", "from")), ("v:1a._.E5", ("1a", "_", "E5")), ("v:a:b[1]:`c d`", ("a", "b", 1, "c d")),
    ("v:`é`['日\n']", ("é", "日\n")), ("v:[007]", (7,)), ("v:`*`.a", ("*", "a")), ("v:[' a ']", (" a ",)),
    ("variant_get(v, '$.a[0]')", ("a", 0)), (r"variant_get(v, '$.\u0041\102\n')", ("AB\n",)),
    (r"variant_get(v, r'$.a\b')", (r"a\b",)), ("variant_get(v, '$' \".a\" r'b')", ("ab",)), ("variant_get(v, '$.it''s')",
    ("it's",)),
    ("variant_get(v, '$[\"\"][\"a''\"]')", ("", "a'")), ("variant_get(v:a, '$.b-c')", ("a", "b-c")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "keys"), PATHS)
def test_paths(text, keys):
    """A path has the steps that it has in Spark, also in front of a cast: a backslash in a key is a character of the key."""
    for found in (parse_any(text, SCHEMA, UTC), parse_column_text(text, SCHEMA, UTC)):
        assert isinstance(found, Get)
        assert found.keys == keys
    cast = parse_any(f"{text}::int", SCHEMA, UTC)
    assert isinstance(cast, Get)
    assert (cast.keys, cast.kind) == (keys, pa.int32())


REFUSED = [
    'v:["a"]', "v:['a''b']", r"v:['a\'b']", "v:['a' 'b']", "v:[r'a']", "v:['']", "v:[' ']", "v:``", "v:`*a`", "v:`a.b`", "v:`a",
    "v:$.a", "v:a-b", "v:é", "v:1", "v:a.1", "v:a.", "v:.a", "v:a..b", "v:[a]", "v:[-1]", "v:[2147483648]", "v:[1L]", "v:[*]",
    "v:a.*", "v:a b", "v:a AS b", "v:", "v::", "v:a?::int", "v:a::text", "v:a::`int`", "v:a::int64", "v:a;", "v:a)", "v:a /* b",
    "v:a/*+ b */", "v:a\x85", "'v':a", "é:a", "x`y:a", "A b:a", "variant_get(v, 'a')", "variant_get(v, '$.')", "v:a::string[0]",
    "variant_get(v, '$[-1]')", "variant_get(v, '$[\"a]')", "variant_get(v, '$.a', 'text')", "variant_get(v, '$.a', '`int`')",
    "v:['a']['b", "variant_get(v, '$.a", "n:a", "s.n:a",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_paths_that_are_refused(text):
    """What Spark refuses, or reads as something else, is an error of this package that shows the text."""
    for parse in (parse_any, parse_column_text):
        with pytest.raises(errors.DeltaVariantError) as e:
            parse(text, SCHEMA, UTC)
        assert repr(text) in str(e.value)


@pytest.mark.parametrize(
    "text",
    ["n in (1) = true", "true = n is null", "n not in (1) = true", "true = not true", "n is null is null",
     "n between 1 and 2 is null", "n is not distinct from n = true", "v:a not null", "v:a::int not null", "n not null",
     "n isnull",
     "n = 1 n", "n = 1;", "n in (1) 'x'", "n = {1}", "n = $1", "n = :n", "n = ?", "n = 1 /*+ h */", "n = 'a", "n = `n",
     "n # 1"],
)  # fmt: skip
def test_predicates_that_are_refused(text):
    """What sqlglot reads and Spark refuses, or reads in another order, is refused."""
    with pytest.raises(errors.UnsupportedFeatureError) as e:
        parse_any(text, SCHEMA, UTC)
    assert repr(text) in str(e.value)


@pytest.mark.parametrize(
    "text", ["not null", "n = 1 and not null", "(n in (1)) = true", "not n is not null", "- 1 = n", "n == +1"]
)
def test_predicates_that_are_taken(text):
    """The same words in an order that Spark reads alike are taken."""
    assert parse_any(text, SCHEMA, UTC).kind in (pa.bool_(), pa.null())


def test_messages_have_the_paths_of_the_user(tmp_path):
    """An error shows names and paths as they are spelled, and the way out for those that Spark reads otherwise."""
    for text, message in [
        ("abs(v:['a\\b'].c) = 1", r"^ABS\(v:\['a\\b'\]\.c\) in "),
        ("v:`a.b` = 1", r"`a\.b` is more than one step in Spark: write a key with such characters as \['key'\]"),
        ("v:a-b::int = 1", r"v:a - b"),
        ("n:a = 1", "n is int, not VARIANT"),
    ]:
        with pytest.raises(errors.DeltaVariantError, match=message.replace("v:a - b", "there is no column b|v:a - ")):
            parse_any(text, SCHEMA, UTC)


# ---- Spark's parser -----------------------------------------------------------------------------------------------------

BLANKS = st.sampled_from(
    [""] * 10 + [" ", "\n", "\xa0", "\u2003", "/*c*/", "/* ' /*\"*/ */", "-- `\n", "\x85", "\ufeff", "/*+h*/", "/*"]
)
CHARS = list("ab \\'\"`.[]:$*?-\n\té日😀n0%@,;") + ["u0041", "::", "--", "/*", "*/", "\x00", "\x1c"]
JUNK = st.lists(st.sampled_from(CHARS), max_size=5).map("".join)
WORDS = st.sampled_from([
    "a", "b1", "_x", "1a", "0", "12", "1e5", "1e", "E", "é", "ß", "٣", "variant_path_0", "select", "FROM", "where", "and",
    "Not", "is", "null", "true", "in", "like", "case", "end", "cast", "as", "interval", "date", "timestamp", "array",
    "struct", "left", "cross", "join", "current_date", "values", "x", "r", "between", "escape", "exists",
])  # fmt: skip
BACKQUOTED = JUNK.map(lambda text: f"`{text.replace('`', '``')}`")
QUOTED = st.one_of(
    JUNK.map("'{}'".format),
    JUNK.map(lambda text: "'" + text.replace("'", "") + "'"),
    JUNK.map('"{}"'.format),
    JUNK.map("r'{}'".format),
    st.tuples(JUNK, JUNK).map(lambda pair: "'" + "''".join(pair) + "'"),
)
INDEXES = st.sampled_from([
    "0", "1", "007", "-1", "+1", "2147483647", "2147483648", "99999999999999999999", "1L", "1.0", ".5", "*", "a", "0x1", "٣",
    "1:2",
])  # fmt: skip
KEYS = st.one_of(WORDS, WORDS, BACKQUOTED)
STEPS = st.one_of(
    st.tuples(st.sampled_from([".", ".", ".", "", ":"]), BLANKS, KEYS),
    st.tuples(st.just("["), BLANKS, st.one_of(QUOTED, INDEXES), BLANKS, st.just("]")),
).map("".join)
COLUMNS = st.sampled_from([
    *["v"] * 8, "V", "`v`", "s.w", "S.`W`", "s . in", "`A b`", "A b", "`é`", "é", "date", "order", "1a", "is", "in",
    "variant_path_0", "`x``y`", "x`y", "(v)", "'v'", '"v"',
])  # fmt: skip
TYPES = st.sampled_from(
    ["int", "BIGINT", "string", "double", "decimal( 9 , 2 )", "timestamp", "timestamp_ntz", "timestamp_ltz", "date", "boolean",
    "bool",
     "text", "variant", "long", "integer", "uuid", "int64", "dec(5)", "`int`", "datetime", "number"]
)  # fmt: skip
FIRST = st.one_of(KEYS, st.tuples(st.just("["), st.one_of(QUOTED, INDEXES), st.just("]")).map("".join))
EXTRACTIONS = st.tuples(
    COLUMNS, BLANKS, st.just(":"), BLANKS, FIRST, st.lists(st.tuples(BLANKS, STEPS).map("".join), max_size=2).map("".join)
)
ENDS = st.one_of(
    st.just(""),
    st.just(""),
    TYPES.map("::".__add__),
    TYPES.map(" :: ".__add__),
    st.sampled_from([" x", ".", "[", ";", "?", ")"]),
)
VARIANT_PATHS = st.lists(
    st.one_of(JUNK.map(".".__add__), JUNK.map("['{}']".format), JUNK.map('["{}"]'.format), INDEXES.map("[{}]".format)),
    max_size=3,
).map(lambda steps: "$" + "".join(steps))


def literal(text: str) -> st.SearchStrategy[str]:
    """A literal of Spark for a text, in any of the forms."""
    forms = [
        "'" + text.replace("\\", "\\\\").replace("'", "''") + "'",
        '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"',
        "'" + "".join(f"\\u{ord(char):04x}" if ord(char) < 65536 else f"\\U{ord(char):08x}" for char in text) + "'",
        "r'" + text.replace("'", "") + "'",
        "'" + text + "'",
    ]
    return st.sampled_from([*forms, *(f"{form} ''" for form in forms)])


CALLS = st.tuples(
    st.sampled_from(["variant_get(", "TRY_VARIANT_GET("]), COLUMNS, st.just(", "), VARIANT_PATHS.flatmap(literal),
    st.one_of(st.just(""), TYPES.flatmap(literal).map(", ".__add__)), st.just(")"),
)  # fmt: skip
CASTS = st.tuples(st.sampled_from(["cast(", "TRY_CAST("]), EXTRACTIONS.map("".join), st.just(" as "), TYPES, st.just(")"))
ANY = st.one_of(st.tuples(EXTRACTIONS.map("".join), ENDS), st.tuples(EXTRACTIONS.map("".join), ENDS), CALLS, CASTS).map("".join)

Path = tuple[tuple[str, ...], tuple[Any, ...], str]
TYPE_NAMES = {
    "long": "bigint",
    "integer": "int",
    "timestamp_ltz": "timestamp",
    "dec(5)": "decimal(5,0)",
    "decimal(9,2)": "decimal(9,2)",
}


class RefusedError(Exception):
    """Spark refuses a text."""


class Parser:
    """Spark's own parsers: of SQL, and of the path of `variant_get`."""

    def __init__(self, spark: SparkSession) -> None:
        self._sql: Any = spark._jsparkSession.sessionState().sqlParser()
        self._paths: Any = jvm.static(spark, "org.apache.spark.sql.catalyst.expressions.variant.VariantPathParser")

    def parsed(self, text: str) -> Any:
        try:
            return self._sql.parseExpression(text)
        except (PySparkException, Py4JJavaError) as error:  # for some paths, Spark 4.2 fails to make its own message
            raise RefusedError from error

    def path(self, text: str) -> Path | None:
        """The column, the steps and the type of a path; None for other expressions."""
        found = self.parsed(text)
        if found.getClass().getSimpleName() == "Alias" and " AS " in found.child().toString():
            return None  # a name for a path, or a path in a path
        return self._of(found)

    def _of(self, node: Any) -> Path | None:
        match node.getClass().getSimpleName():
            case "Alias":
                return self._of(node.child())
            case "UnresolvedAttribute":
                names = node.nameParts()
                return tuple(names.apply(number).lower() for number in range(names.size())), (), "variant"
            case "SemiStructuredExtract":
                return self._under(node.child(), node.field(), "variant")
            case "Cast":
                return self._under(node.child(), "$", node.dataType().sql().lower())
            case "UnresolvedFunction":
                of, *texts = (node.arguments().apply(number) for number in range(node.arguments().size()))
                if any(text.getClass().getSimpleName() != "Literal" for text in texts):
                    return None  # an expression: '$[' % ']'
                path, *kinds = (text.value().toString() for text in texts)
                return self._under(of, path, (kinds or ["variant"])[0].lower().replace(" ", ""))
        return None

    def _under(self, node: Any, path: str, kind: str) -> Path | None:
        of, steps = self._of(node), self._steps(path)
        return None if of is None or of[2] != "variant" else (of[0], (*of[1], *steps), TYPE_NAMES.get(kind, kind))

    def _steps(self, path: str) -> list[str | int]:
        try:
            found = self._paths.parse(path)
        except (PySparkException, Py4JJavaError) as error:  # an index of more than 32 bits
            raise RefusedError from error
        if found.isEmpty():
            raise RefusedError
        return [step.key() if step.getClass().getSimpleName() == "ObjectExtraction" else step.index() for step in found.get()]


def ours(parse: Callable[..., Any], text: str) -> Path:
    found = parse(text, SCHEMA, UTC)
    assert isinstance(found, Column | Get), text
    names = tuple(field.name.lower() for field in found.fields)
    if isinstance(found, Column):
        return names, (), "variant"
    return names, found.keys, "variant" if isinstance(found.kind, fields.Variant) else fields.type_name(found.kind)


@pytest.mark.spark
@pytest.mark.slow
def test_spark_parses_paths_alike(spark):
    """Generated texts, damaged ones among them: the column, the steps and the type are those of Spark's parser, and what it
    refuses is refused. Only few texts that Spark reads as paths are refused."""
    parser, counts = Parser(spark), {"alike": 0, "refused by both": 0, "refused here": 0}

    @settings(max_examples=TEXTS)
    @given(ANY)
    def compare(text):
        try:
            want = parser.path(text)
        except RefusedError:
            want = "refused"
        for parse in (parse_any, parse_column_text):
            try:
                found = ours(parse, text)
            except errors.DeltaVariantError:
                counts["refused by both" if want == "refused" else "refused here"] += 1
            else:
                assert found == want or (want is None and ":" in text), (text, want)
                counts["alike"] += 1

    compare()
    assert counts["alike"] > 0.2 * TEXTS
    assert counts["refused here"] < counts["alike"] / 2, counts


@pytest.mark.spark
@pytest.mark.slow
def test_spark_parses_keywords_alike(spark):
    """Every keyword of Spark is a key of a path, and the name of a field of a struct."""
    vocabulary = jvm.static(spark, "org.apache.spark.sql.catalyst.parser.SqlBaseLexer").VOCABULARY
    names = [vocabulary.getLiteralName(number) or "" for number in range(1, vocabulary.getMaxTokenType() + 1)]
    words = sorted({name.strip("'") for name in names if name.strip("'").replace("_", "").isalpha()})
    parser = Parser(spark)
    assert len(words) > 300
    inner = fields.Struct(tuple(field(word, fields.Variant()) for word in words))
    for word in words:
        found = parse_any(f"s.{word}:{word}.{word}", fields.Struct((field("s", inner),)), UTC)
        assert isinstance(found, Get)
        assert ([one.name for one in found.fields], found.keys) == (["s", word], (word, word))
    for word in share(words, 8):
        assert ours(parse_any, f"v:{word}") == parser.path(f"v:{word}") == (("v",), (word,), "variant")


@pytest.mark.spark
@pytest.mark.slow
def test_spark_parses_strings_alike(spark):
    """Generated strings, one or several side by side, have the value that they have in Spark, or both refuse them."""
    parser = Parser(spark)
    chars = st.sampled_from(
        list("a'\"\\nu0174é😀%_ZxUbtr \x008\n") + ["D83D", "DE00", "0041", "00110000", "\\u", "\\U", "''", '""']
    )
    quotes = st.sampled_from(["'", "'", '"', "r'", 'R"'])
    one = st.tuples(quotes, st.lists(chars, max_size=8).map("".join)).map(lambda pair: pair[0] + pair[1] + pair[0][-1])

    @settings(max_examples=TEXTS)
    @given(st.lists(one, min_size=1, max_size=3), st.sampled_from(["", " ", "\n"]))
    def compare(parts, between):
        text = between.join(parts)
        try:
            node = parser.parsed(text)
        except RefusedError:
            node = None
        is_literal = node is not None and node.getClass().getSimpleName() == "Literal"
        try:
            found = parse_any(text, SCHEMA, UTC)
        except errors.DeltaVariantError:
            assert not is_literal, text
        else:
            assert isinstance(found, Literal)
            assert is_literal, text
            assert found.value == node.value().toString(), text

    compare()


# ---- rows ---------------------------------------------------------------------------------------------------------------

DOCUMENTS: list[dict[str, Any]] = [
    {"a\\b": 1}, {"a\b": 2}, {"n\n": 3}, {"n\\n": 4}, {"uA": 5}, {"u\\u0041": 6}, {"C:\\temp": 7}, {"C:\temp": 8},
    {"p\\\\q": 9}, {"p\\q": 10}, {"it's": 11}, {'a"b': 12}, {"a`b": 13}, {"é": 14}, {"select": 15},
    {"1a": 16}, {"": 17}, {" ": 18}, {"*": 19},
    {"a.b": 20}, {"a": {"b": 21}}, {"A": 22}, {"s": "C:\\temp"}, {"s": "C:\temp"}, {"s": "a%b"}, {"s": "a\\b"}, {"s": "axb"},
    {"s": "it's"}, {"s": "a\nb"}, {"s": "a_b"}, {"s": "a\\%b"},
]  # fmt: skip
KEYS_OF_ROWS = [
    r"v:['a\b']", r"v:['n\n']", r"v:['u\u0041']", r"v:['C:\temp']", r"v:['p\\q']", r"v:['p\q']", "v:`it's`", "v:['a\"b']",
    "v:`a``b`", "v:`é`", "v:select", "v:1a", "v:`*`", "v:['a.b']", "v:a.b", "v:A", "V : /* c */ a -- b\n . b",
]  # fmt: skip
ROWS = [
    *(f"{path} IS NOT NULL" for path in KEYS_OF_ROWS),
    *(f"{path}::int > 0" for path in KEYS_OF_ROWS),
    r"""variant_get(v, '$["a\\b"]', 'int') = 1""",
    r"""variant_get(v, '$["C:\\temp"]', 'int') = 7""",
    r"""try_variant_get(v, '$["n\n"]', 'int') = 3""",
    r"variant_get(v, r'$.n\n', 'int') = 4",
    r"variant_get(v, '$.u\u0041', 'int') = 5",
    "variant_get(v, '$['''']', 'int') = 17",
    "variant_get(v, '$[\"\"]', 'int') = 17",
    "variant_get(v, '$. ', 'int') = 18",
    r"v:s::string = 'C:\temp'",
    r"v:s::string = 'C:\\temp'",
    r"v:s::string = r'C:\temp'",
    r"s = 'C:\\temp' OR `s` = 'a\\b'",
    r'v:s::string == "it\'s"',
    "v:s::string = 'it' '''s'",
    r"v:s::string LIKE 'a\%b'",
    r"v:s::string LIKE 'a\\%b'",
    r"v:s::string LIKE r'a\\b'",
    r"v:s::string LIKE 'a\\\\b'",
    r"v:s::string LIKE 'a\\\\\\%b'",
    r"v:s::string LIKE 'a\_b'",
    "v:s::string LIKE 'a_b'",
    "v:s::string LIKE 'a!%b' ESCAPE '!'",
    r"v:s::string IN ('a\nb', 'a%b')",
    r"v:s::string IN ('a\nb', 'a\%b')",
    "date'2024-01-01' = '2024-01-01' AND v:1a::int !< 16",
]


@pytest.mark.spark
@pytest.mark.slow
def test_rows_of_texts(spark, tmp_path):
    """Predicates with escapes in keys, strings and patterns give the rows that Spark gives, and paths give their values."""
    rows = [(number, json.dumps(document), document.get("s")) for number, document in enumerate(DOCUMENTS)]
    ids, texts = pa.array([row[0] for row in rows], pa.int32()), pa.array([row[2] for row in rows], pa.string())
    table = pa.table({"id": ids, "s": texts, "v": column(DOCUMENTS)})
    path = by_hand(tmp_path / "t", {"id": "integer", "s": "string", "v": "variant"}, [(table, {})], protocol=PROTOCOL)
    paths = [f"{text}::string" for text in KEYS_OF_ROWS[:6]]
    df = spark.createDataFrame(rows, "id int, j string, s string").coalesce(1).selectExpr("id", "s", "parse_json(j) v")
    tests = (f"({text}) p{number}" for number, text in enumerate(ROWS))
    found = df.selectExpr("id", *tests, *(f"{text} c{number}" for number, text in enumerate(paths))).collect()
    want = {text: [row["id"] for row in found if row[f"p{number}"]] for number, text in enumerate(ROWS)}
    assert {text: sorted(dv.scan(path, ["id"], text).read_all()["id"].to_pylist()) for text in ROWS} == want
    assert sum(map(bool, want.values())) > 40
    columns = {f"c{number}": text for number, text in enumerate(paths)}
    scanned = dv.scan(path, {"id": "id", **columns}).read_all().sort_by("id").to_pylist()
    assert scanned == [{name: row[name] for name in ("id", *columns)} for row in found]

"""Times that are text: which strings spell one, their bounds in the tag of times, and that these are Spark's own casts."""

from __future__ import annotations

import datetime as dt
import itertools
import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_variant import shredding
from delta_variant.stats import BOUNDS_TAG, BOUNDS_TAG_VALUE, NONNULL_TAG, TIMES_TAG, FileStats, decode_bounds
from delta_variant.stats.values import Times
from tests.strategies import column
from tests.support import length

V = ("v",)
UTC = dt.timezone.utc
TEXTS = length("TIMES_TEXTS", 4000, 200_000)
ZONES = ["UTC", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia"]


def scalars(*arrays):
    """The array for the tag, of strings that came in these arrays."""
    times = Times()
    for array in arrays:
        times.add(array if isinstance(array, pa.Array) else pa.array(array, pa.string()))
    return times.bounds()


def bounds(*arrays):
    """The same as Python values."""
    return [scalar.as_py() for scalar in scalars(*arrays)]


# --------------------------------------------------------------------------------------------------- what spells a time

OFFSETS = st.one_of(st.just(0), st.integers(-18 * 60, 18 * 60))
LOCAL = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999))


@st.composite
def moments(draw, offsets=OFFSETS):
    """(text, local time, offset in minutes or None for a text without one)."""
    local = draw(LOCAL)
    digits = draw(st.integers(0, 9))
    offset = draw(offsets)
    nanos = local.microsecond * 1000 + draw(st.integers(0, 999))
    fraction = f"{nanos:09d}"[:digits]
    local = local.replace(microsecond=int(fraction.ljust(6, "0")[:6]))
    text = f"{local.year:04d}{local:-%m-%d}{draw(st.sampled_from('T '))}{local:%H:%M:%S}{'.' * (digits > 0)}{fraction}"
    if offset is not None:
        sign, (hours, minutes) = "-+"[offset >= 0], divmod(abs(offset), 60)
        forms = [f"{sign}{hours:02d}:{minutes:02d}", f"{sign}{hours:02d}{minutes:02d}"]
        forms += [f"{sign}{hours:02d}"] * (minutes == 0) + ["Z", " UTC", "-00:00"] * (offset == 0)
        text += draw(st.sampled_from(forms))
    return text, local, offset


@given(st.lists(moments(), min_size=1))
def test_texts_with_an_offset(made):
    """The bounds are the first and the last instant, and the first and the last local time if an offset is not zero (M3)."""
    texts, local, offsets = zip(*made, strict=True)
    epoch = dt.datetime(1970, 1, 1)
    micros = dt.timedelta(microseconds=1)
    instants = [(at - epoch) // micros - offset * 60_000_000 for at, offset in zip(local, offsets, strict=True)]
    found = scalars(texts)
    assert [scalar.value for scalar in found[:2]] == [min(instants), max(instants)]
    assert [scalar.as_py() for scalar in found[2:]] == ([min(local), max(local)] if any(offsets) else [])
    assert [scalar.type.tz for scalar in found] == ["UTC", "UTC", None, None][: len(found)]


@given(
    st.lists(
        st.one_of(moments(st.none()), st.dates().map(lambda d: (d.isoformat(), dt.datetime(d.year, d.month, d.day), None))),
        min_size=1,
    )
)
def test_texts_without_an_offset(made):
    """The bounds are the first and the last local time; that of a date is its midnight (M3)."""
    texts, local, _ = zip(*made, strict=True)
    assert bounds(texts) == [min(local), max(local)]


ODD = [
    *(
        "",
        "2024",
        "2024-11",
        "2024-1-1",
        " 2024-11-21",
        "2024/11/21",
        "20241121T160937Z",
        "\uff12\uff1024-11-21",
        "2024-11-2\u00e9",
    ),
    *(
        "2024-00-01",
        "2024-13-01",
        "2024-01-00",
        "2024-01-32",
        "2024-04-31",
        "2023-02-29",
        "2024-02-30",
        "1900-02-29",
        "2100-02-29",
    ),
    *(
        "0000-01-01",
        "-001-01-01",
        "-0001-01-01",
        "+2024-01-01",
        "12024-01-01",
        "epoch",
        "now",
        "1732205377",
        "T16:09:37",
        "16:09Z",
    ),
    *(f"2024-11-21{rest}" for rest in ("T", " ", "Z", "T16", "T16:09", "T16:09Z", "t16:09:37", "T16:09:3/", "T1\uffff:09:37")),
    *(f"2024-11-21T{rest}" for rest in ("24:00:00", "23:60:00", "23:59:60Z", "16:09:3:", "16:9:37", "16-09-37", "160937")),
    *(f"2024-11-21T16:09:37{rest}" for rest in ("z", ".", ".Z", ".1234567890", ",5", "ZZ", "Z ", " Z", "UTC", " utc", " GMT")),
    *(f"2024-11-21T16:09:37{rest}" for rest in ("+18:01", "-18:01", "+19", "+05:60", "+5", "+5:00", "+05:0", "+05;00")),
    *(f"2024-11-21T16:09:37{rest}" for rest in ("+05:00:00", " +05:00", "+", "+0530 ", "05:30")),
]


@pytest.mark.parametrize("text", ODD)
def test_other_texts(text):
    """Any other string, alone or behind times, leaves a path without bounds, and none come back later (M3)."""
    for first in ([], ["2024-11-21"], ["2024-11-21T16:09:37Z"]):
        assert bounds([*first, text]) == []
        assert bounds([*first, text], ["2024-11-21"]) == []


def test_texts_with_and_without_an_offset():
    """Strings of which only some have an offset leave a path without bounds: their order depends on the time zone (M3)."""
    for pair in itertools.permutations(["2024-11-21T16:09:37Z", "2024-11-21"]):
        assert bounds(pair) == bounds(*([text] for text in pair)) == []


SOME = [
    "2024-11-21T16:09:37Z",
    "2024-11-21 16:09:37.5+02:00",
    "1999-12-31T23:59:59.999-1800",
    None,
    "x",
    "2024-11-21",
    "2001-01-01",
]


@given(st.lists(st.lists(st.sampled_from(SOME[:4]), max_size=5)), st.sampled_from([pa.string(), pa.large_string()]))
def test_batches_and_nulls(parts, kind):
    """The bounds do not depend on how rows are divided into arrays, on nulls, or on where in a buffer an array begins (M3)."""
    whole = [text for part in parts for text in part]
    sliced = pa.array(["x", *whole, None, "x"], kind).slice(1, len(whole))
    expected = bounds([text for text in whole if text])
    assert bounds(*(pa.array(part, kind) for part in parts)) == bounds(sliced) == expected
    assert bool(expected) == any(whole)


ENDS = [*["Z"] * 6, *[""] * 6, *["{0}:{1}"] * 4, "{0}{1}", "{0}{1}", "{0}", " UTC", "z", " Z", "UTC", " {0}:{1}"]


def generated(rng):
    """A text that is a time in one of the forms, or nearly one."""
    year = rng.choice([rng.randrange(10000), 2024, 2023, 1582, 1900, 1, 9999])
    month, day = rng.choice([(2, 28), (2, 29), (2, 30), *[(rng.randrange(1, 13), rng.randrange(1, 32)) for _ in range(7)]])
    text = f"{year:04d}-{month:02d}-{day:02d}"
    if rng.random() < 0.85:
        hour, minute, second = (rng.choice([rng.randrange(most), most - (rng.random() < 0.9)]) for most in (24, 60, 60))
        text += f"{rng.choice('TTTTTTT       t')}{hour:02d}:{minute:02d}:{second:02d}"
        if rng.random() < 0.5:
            text += "." + "".join(rng.choice("0123456789") for _ in range(rng.randrange(11)))
        offset = f"{rng.choice('+-')}{rng.choice([0, 2, 5, 9, 13, 17, 18, 19]):02d}"
        text += rng.choice(ENDS).format(offset, f"{rng.choice([0, 0, 0, 30, 45, 59, 60]):02d}")
    if rng.random() < 0.1:
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(["", "0", "9", "-", ":", " ", "T", "Z", "+", "é", "/"]) + text[at + rng.randrange(2) :]
    return text


@pytest.mark.spark
def test_as_spark_casts_them(spark):
    """Whatever string has bounds is cast by Spark to these very values, in every zone, as VARIANT and as STRING (M3, Q8)."""
    rng = random.Random(7)
    texts = [*ODD, *(generated(rng) for _ in range(TEXTS))]
    found = [scalars([text]) for text in texts]
    assert TEXTS / 3 < sum(map(bool, found)) < TEXTS * 0.9
    frame = spark.createDataFrame(list(enumerate(texts)), "i int, t string").selectExpr("i", "t", "cast(t as variant) v")
    casts = {
        name: [f"try_variant_get(v, '$', '{name}')", f"try_cast(t as {name})"]
        for name in ("timestamp", "timestamp_ntz", "date")
    }
    forms = {
        "timestamp": "unix_micros({})",
        "timestamp_ntz": "unix_micros(cast(cast({} as string) || 'Z' as timestamp))",
        "date": "unix_date({})",
    }
    listed = [forms[name].format(cast) for name, both in casts.items() for cast in both]
    day, widest = 86_400_000_000, 18 * 3_600_000_000
    try:
        for zone in ZONES:
            spark.conf.set("spark.sql.session.timeZone", zone)
            for row in frame.selectExpr("i", "t", *listed).collect():
                if not found[row.i]:
                    continue
                at, at_text, ntz, ntz_text, days, days_text = row[2:]
                first, *_, last = found[row.i]
                assert (at, ntz, days) == (at_text, ntz_text, days_text), (zone, row.t)
                assert (ntz, days) == (last.value, last.value // day), (zone, row.t)
                assert at == first.value if first.type.tz else abs(at - ntz) <= widest, (zone, row.t)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


# ------------------------------------------------------------------------------------------------------------ the tag


def tags(rows, as_type, names=V, **options):
    stats = FileStats(
        pa.schema([("v", shredding.shred(column(rows), as_type).type)]), variants={names}, indexed={names}, **options
    )
    stats.update(pa.record_batch([shredding.shred(column(rows), as_type)], ["v"]))
    return stats.tags()


def test_the_tag_of_times():
    """The tag has the paths whose strings all spell times, with JSON nulls and rows without the path, and no others (M3)."""
    rows = [
        {"z": "2024-11-21T16:09:37.5Z", "o": {"it's": "2024-11-21 23:00:00+02:00"}, "d": None, "mixed": "2024-11-21", "n": 1},
        {"z": "2024-11-21T16:09:37Z", "o": {"it's": "2024-11-21T23:30:00+05:30"}, "d": "2024-02-29", "mixed": "x", "n": 2},
        {"o": "x", "d": "2001-01-01", "mixed": "2024-11-21", "other": 5},
        {"d": None, "other": "2024-11-21"},
        "SQL NULL",
    ]
    shape = "z string, o struct<`it's`: string>, d string, mixed string, n int, other string, none string"
    second = dt.datetime(2024, 11, 21, 16, 9, 37, tzinfo=UTC)
    assert decode_bounds(tags(rows, shape)[TIMES_TAG]) == {
        "$['v']": {
            "['z']": [second, second.replace(microsecond=500_000)],
            "['d']": [dt.datetime(2001, 1, 1), dt.datetime(2024, 2, 29)],
        },
        "$['v']['o']": {
            "['it\\'s']": [
                dt.datetime(2024, 11, 21, 18, tzinfo=UTC),
                dt.datetime(2024, 11, 21, 21, tzinfo=UTC),
                dt.datetime(2024, 11, 21, 23),
                dt.datetime(2024, 11, 21, 23, 30),
            ]
        },
    }
    assert decode_bounds(tags(["2024-11-21", "SQL NULL"], pa.string())[TIMES_TAG]) == {
        "$": {"['v']": [dt.datetime(2024, 11, 21)] * 2}
    }
    assert TIMES_TAG not in tags([{"a": "x"}], "a string")


def test_both_tags_stay_small():
    """The tags have at most 512 characters, names included; each has half of that, or what the other one leaves (M2, M3)."""
    times, others = ([f"a path with a long name {kind}{i}" for i in range(20)] for kind in "tn")
    row = {**dict.fromkeys(times, "2024-11-21T16:09:37Z"), **dict.fromkeys(others, 1)}
    shape = ", ".join([*(f"`{name}` string" for name in times), *(f"`{name}` int" for name in others)])
    found = {}
    for kind, empty in (
        ("both", [{}, dict.fromkeys(others)]),
        ("times", [{}]),
        ("nonnull", [dict.fromkeys(others), dict.fromkeys(times, "x")]),
    ):
        made = tags([row, *empty], shape)
        size = sum(map(len, [BOUNDS_TAG, BOUNDS_TAG_VALUE, *made, *made.values()]))
        assert 400 < size <= 512
        found[kind] = [len(decode_bounds(made[name])["$['v']"]) if name in made else 0 for name in (TIMES_TAG, NONNULL_TAG)]
    assert found["times"][0] > found["both"][0] > 1
    assert found["nonnull"][1] > found["both"][1] > 1
    assert (found["times"][1], found["nonnull"][0]) == (0, 0)


def test_chosen_times_go_first():
    """The paths of `cluster_by=` and of the table property come first, then those that every row has, then short ones (M3)."""
    names = [f"a path with a long name {i}" for i in range(20)]
    row = {**dict.fromkeys(names, "2024-11-21"), "s": {"t": "2024-11-21"}}
    shape = ", ".join([*(f"`{name}` string" for name in names), "s struct<t: string>"])
    rows = [row, {name: row[name] for name in names[5:]}]
    kept = decode_bounds(tags(rows, shape, first={V: [("s", "t")]})[TIMES_TAG])
    assert "['t']" in kept["$['v']['s']"]
    assert {f"['{name}']" for name in names[:5]}.isdisjoint(kept["$['v']"])
    assert "$['v']['s']" not in decode_bounds(tags(rows, shape)[TIMES_TAG])

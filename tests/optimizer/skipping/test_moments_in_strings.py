"""Casts of strings to dates and timestamps: which files a query opens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from delta_variant.explanation import explain
from delta_variant.stats import BOUNDS_TAG, TIMES_TAG
from delta_variant.writer import write
from tests.optimizer.skipping.asking import answers, first_rows, opened, read, rows
from tests.optimizer.skipping.tables import create
from tests.support import collected, deltas_own_files, forget, scans, share

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]


SPELLED = """to_json(named_struct(
    'z', replace(t, ' ', 'T') || if(id % 3 = 0, 'Z', '.5Z'), 'o', t || if(id % 2 = 0, '+02:00', '-0330'), 'l', t,
    'd', substr(t, 1, 10), 'n', if(id % 5 = 0, null, t || ' UTC'), 'x', if(id = 30, 'soon', t || 'Z'),
    's', named_struct('q"q', t)))"""


def spelled(spark, path, **properties):
    """Six files of a day each, by the hour, in strings; clocks in St. John's were set back in the third of these nights."""
    create(spark, path, "id long, v variant", **properties)
    times = spark.range(0, 144, 1, 1).selectExpr("id", "timestamp_ntz'2006-10-27 00:00:00' + make_interval(0, 0, 0, 0, id) t")
    write(
        times.selectExpr("id", "cast(t as string) t").selectExpr("id", f"parse_json({SPELLED}) v"), path, max_rows_per_file=24
    )
    return str(path)


@pytest.fixture(scope="module")
def in_strings(spark, tmp_path_factory) -> str:
    return spelled(spark, tmp_path_factory.mktemp("tables") / "spelled")


INSTANT = "timestamp'2006-10-29 {}Z'"
TIMES = [  # with the number of files that are opened; 0: those with matching rows, and no others
    (f"v:z::timestamp >= {INSTANT.format('05:00:00')} and v:z::timestamp < {INSTANT.format('07:00:00')}", 0),
    (f"variant_get(v, '$.z', 'timestamp') between {INSTANT.format('22:59:59')} and {INSTANT.format('23:30:00')}", 0),
    (f"v:z::timestamp = {INSTANT.format('06:00:00')}", 0),
    (f"try_variant_get(v, '$.z', 'timestamp') in ({INSTANT.format('06:00:00')}, {INSTANT.format('23:00:00.5')})", 0),
    ("v:z::date = date'2006-10-29'", 0),
    ("v:d::date <> date'2006-10-29'", 0),
    ("v:z::timestamp_ntz <= timestamp_ntz'2006-10-27 00:00:00'", 0),
    ("v:z::timestamp_ntz::date > date'2006-10-31'", 0),
    (f"v:o::timestamp < {INSTANT.format('00:00:00')}", 0),
    ("v:o::date = date'2006-10-29'", 0),
    ("v:o::timestamp_ntz >= timestamp_ntz'2006-11-01 00:00:00'", 0),
    ("v:l::timestamp_ntz between timestamp_ntz'2006-10-29 00:00:00' and timestamp_ntz'2006-10-29 03:00:00'", 0),
    ("v:l::date in (date'2006-10-27', date'2006-11-01')", 0),
    (f"v:l::timestamp = {INSTANT.format('14:30:00')}", 3),  # a zone may be as far as 18 hours from UTC
    (f"v:l::timestamp < {INSTANT.format('05:00:00')}", 3),
    ("v:d::date = date'2006-10-29'", 0),
    ("v:d::timestamp_ntz > timestamp_ntz'2006-10-31 12:00:00'", 0),
    ("v:d::timestamp < timestamp'2006-10-27 12:00:00Z'", 2),
    (f"v:n::timestamp < {INSTANT.format('00:00:00')}", 0),
    (f"try_variant_get(v, '$.x', 'timestamp') > {INSTANT.format('00:00:00')}", 5),
    (f"cast(v:z::string as timestamp) < {INSTANT.format('00:00:00')}", 0),
    (f"to_timestamp(v:z::string) > {INSTANT.format('23:00:00')}", 0),
    (f"try_to_timestamp(v:n::string) > {INSTANT.format('23:00:00')}", 0),
    ("to_date(v:z::string) = date'2006-10-29'", 0),
    ("not (v:z::string::date <> date'2006-10-29')", 0),
    ("variant_get(v, '$.s[\\'q\"q\\']', 'date') = date'2006-10-29'", 0),
]


@pytest.mark.parametrize(("zone", "plan_form"), [("UTC", "true"), ("America/St_Johns", "false")], indirect=["plan_form"])
def test_times_in_strings(spark, in_strings, zone, plan_form):
    """Casts of strings to dates and timestamps open the files with matching rows, in every time zone (Q8).

    Files are opened beside them if a string without an offset is compared with an instant, or if one string is no time.
    """
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        shared = TIMES if zone != "UTC" else share(TIMES, 2)
        found = answers(spark, in_strings, [predicate for predicate, _ in shared])
        for predicate, files in shared:
            answer = found[predicate]
            assert answer.found == answer.wanted, predicate
            assert answer.files == (files or answer.matching), predicate
            assert answer.files < 6, predicate
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_strings_without_the_tag_of_times(spark, tmp_path):
    """Without the tag or the marker every file is opened, and `explain` says why; one file without them is opened (Q8)."""
    path = spelled(spark, tmp_path / "t")
    asked = [f"v:z::{cast} < {INSTANT.format('00:00:00')}" for cast in ("timestamp", "string::timestamp")]
    log = Path(path, "_delta_log", "00000000000000000001.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    adds = [action["add"] for action in actions if "add" in action]

    def left(tags, described=scans):
        for add, kept in zip(adds, tags, strict=True):
            add["tags"] = kept
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))
        log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
        forget(spark)
        df = spark.sql(" union all ".join(f"select id from delta.`{path}` where {predicate}" for predicate in asked))
        assert rows(df) == sorted([(n,) for n in range(48)] * 2, key=repr)
        found = described(df)
        return [scan.files_after_bounds for scan in found], [scan.reasons for scan in found]

    whole = [add["tags"] for add in adds]
    reasons = lambda df: explain(df).scans  # noqa: E731
    assert left(whole, reasons) == ([2, 2], [(), ()])
    assert left([{BOUNDS_TAG: whole[0][BOUNDS_TAG]}, *whole[1:5], {}])[0] == [3, 3]
    assert left([{TIMES_TAG: tags[TIMES_TAG]} for tags in whole])[0] == [6, 6]
    files, [path_reasons, text_reasons] = left([{BOUNDS_TAG: tags[BOUNDS_TAG]} for tags in whole], reasons)
    assert files == [6, 6]
    assert path_reasons == (f"strings at v:z, of which the tag {TIMES_TAG} has no bounds, in 6 of 6 files",)
    [text_reason] = text_reasons
    assert f"times in strings count only in files whose Add has the tag {TIMES_TAG}" in text_reason
    files, _ = left([{**tags, TIMES_TAG: "damaged"} for tags in whole])
    assert files == [6, 6]


def test_times_in_strings_after_changes(spark, tmp_path):
    """Files that DELETE left with a deletion vector keep the tag; files of Delta's UPDATE and OPTIMIZE are opened (Q8)."""
    path = spelled(spark, tmp_path / "t", **{"delta.enableDeletionVectors": "true"})
    table = f"delta.`{path}`"
    query = lambda: read(spark, path).where("v:z::date = date'2006-10-29'").select("id")  # noqa: E731
    spark.sql(f"delete from {table} where v:z::timestamp between {INSTANT.format('00:00:00')} and {INSTANT.format('12:00:00')}")
    df = query()
    assert (sorted(row.id for row in collected(df)), opened(df)) == ([*range(61, 72)], [1])
    with deltas_own_files(spark):
        spark.sql(
            f"""update {table} set v = parse_json('{{"z": "2006-10-29T05:00:00+10:00"}}') where v:z::date = date'2006-10-27'"""
        )
    df = query()
    assert (sorted(row.id for row in collected(df)), opened(df)) == ([*range(24), *range(61, 72)], [2])
    with deltas_own_files(spark):
        spark.sql(f"optimize {table}").collect()
    assert sorted(row.id for row in collected(query())) == [*range(24), *range(61, 72)]


def test_times_in_strings_of_joins_and_orders(spark, in_strings):
    """Joins with constants and ORDER BY with LIMIT use exact bounds of strings; wider ones only where they may be (Q6, Q8)."""
    values = "(values (timestamp'2006-10-29 06:00:00Z'), (timestamp'2006-10-29 09:00:00Z')) k(t)"
    table = f"delta.`{in_strings}`"
    asked = {
        f"select id from {table} join {values} on v:z::timestamp = t": 1,
        f"select id from {table} left semi join {values} on cast(v:z::string as timestamp) = t": 1,
        f"select id from {table} order by v:z::timestamp desc limit 2": 2,
        f"select id from {table} order by v:z::string::timestamp nulls last limit 1": 1,
        f"select id from {table} order by v:o::timestamp_ntz desc limit 1": 1,
        f"select id from {table} order by v:l::timestamp_ntz desc limit 1": 1,
        f"select id from {table} order by v:l::timestamp desc limit 1": 6,
        f"select v:d::date from {table} order by v:d::date desc limit 1": 1,
    }
    assert [scan.files_after_bounds for scan in first_rows(spark, list(asked))] == list(asked.values())

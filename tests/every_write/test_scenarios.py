"""Every write of an enabled session equals that of a plain one, but for sizes and names of files.

The statements of each scenario run on twin tables, in an enabled and in a plain session. Both must leave the same log (commits
with their operations, parameters and metrics of rows and files; schemas, properties and protocols; partition values, statistics
and row ids of each file; change data; domains), the same rows, change feeds and row ids, and fail with the same errors.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest

import pytest

import delta_variant as dv
from delta_variant import jvm
from tests.every_write.scenarios import ALONE, GENERATED, SCENARIOS
from tests.every_write.twins import OURS, REMOVED, Log, Scenario, Twin, changes_of_both, outcome, rows_of_both, run, statements
from tests.support import SOAK

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

SETTINGS = {
    "spark.delta_variant.lateMaterializationBytes": "0",
    "spark.delta_variant.everyWrite": "all",
    "spark.sql.files.minPartitionNum": "1",  # files are read in one task, whatever their sizes
    "spark.databricks.delta.variantShredding.forceUsePreviewTableFeature": "false",  # as `enable` has it
}


@pytest.fixture(scope="module")
def twins(spark, tmp_path_factory) -> Iterator[tuple[Twin, Twin]]:
    directory = tmp_path_factory.mktemp("twins")
    pair = tuple(Twin(name, spark.newSession(), directory / name) for name in ("ours", "plain"))
    for twin in pair:
        for key, value in SETTINGS.items():
            twin.session.conf.set(key, value)
    dv.enable(pair[0].session)
    yield pair
    dv.disable(pair[0].session)


@pytest.mark.parametrize("name", [name for name in SCENARIOS if SOAK or name not in ALONE])
def test_twins(twins, name, caplog):
    """An enabled and a plain session leave the same log, rows, change data and row ids, and fail with the same errors. All
    files of the enabled session are of this package, unless the scenario says why Delta writes them (W10)."""
    scenario = SCENARIOS[name]
    ours, plain = (twin._replace(directory=twin.directory / name) for twin in twins)
    for twin in (ours, plain):
        plain.session.sql(f"CREATE DATABASE {twin.name} LOCATION '{twin.directory}'")
        plain.session.sql(f"USE {twin.name}")
        for step in statements(scenario.made_by_delta):
            outcome(twin._replace(session=plain.session), step)
        twin.session.sql(f"USE {twin.name}")
    try:
        with caplog.at_level(logging.INFO, "delta_variant"):
            found = differences(ours, plain, scenario)
        assert not found, "\n".join([*found, caplog.text])
        assert scenario.delta is None or scenario.delta in caplog.text
    finally:
        for twin in (ours, plain):
            twin.session.sql("USE default")
            plain.session.sql(f"DROP DATABASE {twin.name} CASCADE")


@pytest.mark.parametrize("row", [0, 4], ids=["first row of the first task", "first row of the second task"])
def test_an_error_of_a_row_ends_the_statement(twins, tmp_path, caplog, row):
    """Delta does not write the files once more."""
    session, name = twins[0].session, f"delta.`{tmp_path}/t`"
    with jvm.settings(session, GENERATED), caplog.at_level(logging.INFO, "delta_variant"):
        session.sql(f"CREATE TABLE {name} (id DOUBLE, v VARIANT) USING delta")
        with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
            session.sql(f"INSERT INTO {name} SELECT 1 / (id - {row}), NULL FROM range(0, 8, 1, 2)")
    assert not [record.getMessage() for record in caplog.records if record.name == "delta_variant"]


def differences(ours: Twin, plain: Twin, scenario: Scenario) -> list[str]:
    """Runs the statements, and says what differs: outcomes, the log, who wrote the files; or else rows and changes."""
    first = {table: len(Log(ours.directory / table).commits) for table in scenario.tables}
    outcomes = zip(run(ours, scenario), run(plain, scenario), strict=True)
    found = [
        f"statement {number}, {step}:\n  {ours}\nbut plain:\n  {plains}"
        for number, ((step, ours), (_, plains)) in enumerate(outcomes)
        if ours != plains
    ]
    logs = {table: [Log(twin.directory / table) for twin in (ours, plain)] for table in scenario.tables}
    for table, both in logs.items():
        found += unlike(f"log of {table}", *(log.readable(same_files=scenario.same_files) for log in both))
        if scenario.delta is None:
            found += [f"{path} is {by}" for path, by in both[0].writers(first[table]) if by not in (OURS, REMOVED)]
    return found or [text for table, (_, log) in logs.items() for text in unlike_rows(plain, table, log, scenario)]


def unlike_rows(plain: Twin, table: str, log: Log, scenario: Scenario) -> Iterator[str]:
    """Rows, row ids and changes that one twin has and the other has not."""
    yield from unlike(f"rows of {table}", *rows_of_both(plain, table, log.row_columns()))
    begins = log.feed_begins()
    if begins is not None:
        yield from unlike(f"changes of {table}", *changes_of_both(plain, table, max(begins, scenario.changes_from)))


def unlike(about: str, found: list[list[str]], expected: list[list[str]]) -> Iterator[str]:
    """The texts that one of two lists of lists has and the other has not."""
    for number, (ours, plains) in enumerate(zip_longest(found, expected, fillvalue=[])):
        only, missing = Counter(ours) - Counter(plains), Counter(plains) - Counter(ours)
        if only or missing:
            yield "\n".join(
                [
                    f"{about} {number}:",
                    *(f"  {x}" for x in only.elements()),
                    "but plain:",
                    *(f"  {x}" for x in missing.elements()),
                ]
            )

"""Two statements at once: in enabled sessions they end as in plain ones, in both orders.

The statement that starts first is held just before its commit until the other has committed, as in writer/test_conflicts.
"""

from __future__ import annotations

import itertools
import shutil
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

import delta_variant as dv
from tests import logs
from tests.every_write.comparison import normalized, rows
from tests.gates import both, commits
from tests.support import SOAK

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.interpreted]

# ---- statements on a table of the partitions p = 0, 1, 2 with two files each --------------------------------------------

ROWS = "select id, id % 3 p, 'new' who, parse_json(concat('{\"n\": ', id, '}')) v from range(100, 112, 1, 1)"
HEAD = "'new' who, parse_json('{\"n\": 5}') v"
STATEMENTS = {
    "INSERT": f"insert into {{t}} {ROWS}",
    "INSERT into 1": f"insert into {{t}} {ROWS} where id % 3 = 1",
    "INSERT of 1": "insert into {t} select id + 1000, p, 'new', v from {t} where p = 1",
    "INSERT OVERWRITE": f"insert overwrite {{t}} {ROWS}",
    "REPLACE WHERE": f"insert into {{t}} replace where p = 1 {ROWS} where id % 3 = 1",
    "UPDATE in 1": "update {t} set who = 'updated', v = null where p = 1 and id < 5",
    "UPDATE by path": "update {t} set who = 'updated' where v:n::int = 4",
    "DELETE in 1": "delete from {t} where p = 1 and id < 5",
    "DELETE of 0": "delete from {t} where p = 0",
    "MERGE in 1": f"merge into {{t}} t using (select 4L id, 1L p, {HEAD}) s on t.id = s.id and t.p = s.p and t.p = 1 "
    "when matched then update set who = 'merged', v = s.v when not matched then insert *",
    "MERGE": f"merge into {{t}} t using (select explode(array(5L, 50L)) id, 2L p, {HEAD}) s on t.id = s.id "
    "when matched then delete when not matched then insert *",
    "MERGE, inserts": f"merge into {{t}} t using (select 60L id, 0L p, {HEAD}) s on t.id = s.id "
    "when not matched then insert *",
    "OPTIMIZE of 1": "optimize {t} where p = 1",
    "OPTIMIZE": "optimize {t}",
    "ADD COLUMN": "alter table {t} add columns (extra string)",
    "RESTORE": "restore table {t} to version as of 0",
}  # fmt: skip


@pytest.fixture(scope="module")
def base(spark, tmp_path_factory):
    """Tables without and with deletion vectors and row tracking."""
    root = tmp_path_factory.mktemp("conflicts")
    for name, on in (("plain", "false"), ("vectors", "true")):
        table = f"delta.`{root / name}`"
        features = ("enableVariantShredding' = 'true", f"enableDeletionVectors' = '{on}", f"enableRowTracking' = '{on}")
        listed = ", ".join(f"'delta.{feature}'" for feature in features)
        spark.sql(
            f"create table {table} (id bigint, p bigint, who string, v variant) using delta partitioned by (p) "
            f"tblproperties ({listed})"
        )
        for start in (0, 6):
            spark.sql(
                f"insert into {table} select id, id % 3, 'old', parse_json(concat('{{\"n\": ', id, '}}')) from "
                f"range({start}, {start + 6}, 1, 1)"
            )
    return root


@pytest.fixture(scope="module")
def sessions(spark):
    """An enabled session and a plain one."""
    enabled, plain = spark.newSession(), spark.newSession()
    dv.enable(enabled)
    yield {"ours": enabled, "theirs": plain}
    dv.disable(enabled)


WRITERS = {"ours": "parquet-cpp-arrow", "theirs": "parquet-mr"}
ALL = itertools.product(STATEMENTS, STATEMENTS, ("plain", "vectors"))
SOME = [*zip(STATEMENTS, [*STATEMENTS][5:] + [*STATEMENTS][:5], itertools.cycle(("vectors", "vectors", "plain", "plain")))][::2]
"""The statement that is held, the other, and the table. `make test` runs each statement once, in one of the two places."""


@pytest.mark.parametrize(("held", "other", "table"), list(ALL) if SOAK else SOME)
def test_ends_as_in_plain_sessions(sessions, gate, base, tmp_path, held, other, table):
    """Two statements at once have the same successes and conflicts, commits and rows as in plain sessions (W10)."""
    found = {}
    for name, session in sessions.items():
        path = str(tmp_path / name)
        shutil.copytree(base / table, path)
        actions = [partial(run, session, STATEMENTS[text], path) for text in (held, other)]
        ends = both(session, gate, path, *actions)
        new = set(logs.live(path)) - set(logs.live(base / table))
        assert written_by(path, new) <= {WRITERS[name]}
        log = [normalized(commit, in_order=False) for commit in logs.commits(path)]
        found[name] = (ends, commits(path), log, rows(sessions["theirs"].table(f"delta.`{path}`")))
    assert found["ours"] == found["theirs"]
    print(f"{table:7} {held:18} beside {other:18} {', '.join(found['ours'][0])}")


def written_by(path: str, files: set[str]) -> set[str]:
    """Which library wrote data files."""
    return {pq.read_metadata(Path(path, unquote(file))).created_by.split(" ")[0] for file in files}


def run(session, statement: str, path: str) -> None:
    session.sql(statement.replace("{t}", f"delta.`{path}`")).collect()

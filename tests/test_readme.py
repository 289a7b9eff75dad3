"""The README's example."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.spark
def test_the_example_runs_and_opens_one_file(spark, capsys):
    """The example runs as it stands, finds its row and opens one file of twenty."""
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    spark.catalog.dropTempView("events")  # other tests have views of that name
    try:
        exec(compile(example, str(README), "exec"), names)
        (scan,) = names["dv"].explain(names["hits"]).scans
    finally:
        names["dv"].disable(spark)
        spark.sql("DROP TABLE IF EXISTS events")
    assert (scan.files_total, scan.files_after_bounds) == (20, 1)
    printed = capsys.readouterr().out
    assert "Commit(version=" in printed
    assert "\n1\n" in printed

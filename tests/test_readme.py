"""The README's examples."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.spark
def test_the_examples_run_and_open_one_file(spark, capsys, tmp_path, monkeypatch):
    """The examples run as they are, one after the other, find the row, open one file of twenty and save the picture."""
    examples = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    spark.catalog.dropTempView("events")  # other tests have views of that name
    try:
        scans = []
        for example in examples:
            exec(compile(example, str(README), "exec"), names)
            scans = scans or ("hits" in names and names["dv"].explain(names["hits"]).scans)
    finally:
        names["dv"].disable(spark)
        for table in ("events", "days", "logs", "texts"):
            spark.sql(f"DROP TABLE IF EXISTS {table}")
    [scan] = scans
    assert (scan.files_total, scan.files_after_bounds) == (20, 1)
    printed = capsys.readouterr().out
    assert "Commit(version=" in printed
    assert "\n1\n" in printed
    assert (tmp_path / "ids.png").exists()

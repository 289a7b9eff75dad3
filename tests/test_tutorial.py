"""The tutorial: its blocks run in order, and print what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parent.parent / "docs" / "tutorial.md"
BLOCKS = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)


@pytest.mark.spark
@pytest.mark.slow
def test_the_tutorial(spark, capsys, tmp_path, monkeypatch):
    """Every block of the tutorial runs and prints the text below it; the pictures are made."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    spark.sql("DROP TABLE IF EXISTS quakes")
    try:
        for code, printed in BLOCKS.findall(TUTORIAL.read_text()):
            capsys.readouterr()
            exec(compile(code, str(TUTORIAL), "exec"), names)
            assert capsys.readouterr().out.strip() == printed.strip(), code
    finally:
        names["dv"].disable(spark)
        spark.sql("DROP TABLE IF EXISTS quakes")
    assert {"before.png", "after.png"} <= {file.name for file in tmp_path.iterdir()}

"""The notebook: its cells run in order, and what it says about files is so."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from tests.support import generated, interpreted

NOTEBOOK = json.loads((Path(__file__).parents[2] / "docs" / "quickstart.ipynb").read_text(encoding="utf-8"))
CELLS = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def test_stripped():
    """The notebook is committed without outputs, and its cells are Python."""
    assert NOTEBOOK["nbformat"] == 4
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in NOTEBOOK["cells"] if "outputs" in cell)
    assert len({cell["id"] for cell in NOTEBOOK["cells"]}) == len(NOTEBOOK["cells"])
    for cell in CELLS:
        ast.parse(cell)


@pytest.mark.spark
@pytest.mark.slow
def test_the_notebook(spark, capsys):
    """The cells run in one session. The questions open few files, and all of them with the rules off; in the order of magnitude
    the strongest earthquakes are in one or two."""
    names: dict[str, object] = {}
    printed = []
    with interpreted(spark), generated(spark):
        try:
            for cell in CELLS:
                exec(compile(cell, "quickstart.ipynb", "exec"), names)
                printed.append(capsys.readouterr().out)
        finally:
            names["dv"].disable(spark)
            spark.catalog.dropTempView("earthquakes")
    text = "".join(printed)
    assert "22km NNE of Hualian, Taiwan" in text
    opened = [int(line.split()[4]) for line in text.splitlines() if re.match(r"\S+ +\d+ +20 +20 +\d+ ", line)]
    assert len(opened) == 3
    assert max(opened) < 10
    assert "[20, 20, 20] files are opened" in text
    after = dict(re.findall(r"^(\w[\w ]+): (\d+) of \d+ files$", text, re.MULTILINE))
    assert int(after["magnitude"]) <= 2

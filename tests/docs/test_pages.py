"""The documentation: its pages build without a broken link, and their Python blocks run and print what is shown."""

from __future__ import annotations

import ast
import contextlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from delta_variant.cli import main
from tests.support import generated, interpreted

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCKS = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)
PAGES = [ROOT / "README.md", *sorted(page for page in DOCS.rglob("*.md") if BLOCKS.search(page.read_text()))]
QUERY = re.compile(r"hits\.collect\(\)")
"""In pages that run a query over a shredded VARIANT. Others plan and explain theirs."""


def run(page: Path, names: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    """Runs the blocks of a page, and compares what each prints with the text below it, if there is one."""
    for code, printed in BLOCKS.findall(page.read_text()):
        capsys.readouterr()
        exec(compile(code, str(page), "exec"), names)
        if printed:
            shown = "\n".join(line.rstrip() for line in capsys.readouterr().out.strip().splitlines())
            assert shown == "\n".join(line.rstrip() for line in printed.strip().splitlines()), code


@pytest.fixture
def tables(spark):
    """Drops the tables that a page makes."""
    spark.catalog.dropTempView("events")  # other tests have views of that name
    before = {table.name for table in spark.catalog.listTables() if not table.isTemporary}
    yield
    for table in spark.catalog.listTables():
        if table.name not in before and not table.isTemporary:
            spark.sql(f"DROP TABLE {table.name}")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages(spark, page, capsys, tmp_path, monkeypatch):
    """Every block of a page runs and prints the text below it, without anything from other pages."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    queries = QUERY.search(page.read_text())
    with interpreted(spark), generated(spark) if queries else contextlib.nullcontext():
        try:
            run(page, names, capsys)
        finally:
            names["dv"].disable(spark)  # type: ignore[attr-defined]
    pictures = re.findall(r"\]\((\w+\.png)\)", page.read_text())
    assert {*pictures} <= {file.name for file in tmp_path.iterdir()}


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_blocks_that_do_not_run(page):
    """The Python of clusters and object stores, which tests of pages cannot run, is valid and imports what it uses."""
    for code in re.findall(r"```py\n(.*?)```", page.read_text(), re.DOTALL):
        used = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
        modules = {module for module in ("dv", "os", "threading", "SparkSession", "F") if module in used}
        assert all(re.search(rf"import .*\b{module}\b", code) for module in modules), code


def commands() -> list[str]:
    found = []
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE):
            if language in {"", "bash"}:
                found += [line for line in block.splitlines() if line.startswith("delta-variant ")]
    return found


@pytest.mark.parametrize("line", sorted(set(commands())))
def test_commands(line):
    """Each command of the documentation exists, with the options that it is shown with."""
    _, *arguments = shlex.split(line, comments=True)
    name, command, rest = main.resolve_command(click.Context(main), arguments)
    assert command is not None
    command.make_context(name, rest)


def test_the_site_builds(tmp_path):
    """The site builds without a warning: no broken link, no page outside the navigation, no function that is gone."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "how-to" / "not-skipping" / "index.html").exists()

"""The examples in docstrings of modules that need no Spark."""

from __future__ import annotations

import doctest
import pkgutil
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pytest

import delta_variant
from tests.by_hand import VARIANTS, by_hand
from tests.strategies import column

NEED_SPARK = {"explanation", "features", "hadoop", "jvm", "optimizer", "session", "table", "transaction", "writer"}


def modules_with_examples(package, directory):
    """Names of modules, found without importing them: packages that need Spark are not entered."""
    for module in pkgutil.iter_modules([str(directory)]):
        name, path = f"{package}.{module.name}", directory / module.name
        if module.name in NEED_SPARK:
            continue
        source = path / "__init__.py" if module.ispkg else path.with_suffix(".py")
        if ">>>" in source.read_text(encoding="utf-8"):
            yield name
        if module.ispkg:
            yield from modules_with_examples(name, path)


MODULES = sorted(modules_with_examples("delta_variant", Path(delta_variant.__file__).parent))


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    """A directory with a table. Examples import delta_variant.arrow, whose type other tests must not find registered."""
    monkeypatch.chdir(tmp_path)
    events = column([{"kind": kind, "id": n} for n, kind in enumerate(["view", "view", "like"] * 3)])
    by_hand(tmp_path / "events", {"v": "variant"}, [(pa.table({"v": events}), {})], protocol=VARIANTS)
    yield
    with suppress(pa.ArrowKeyError):
        pa.unregister_extension_type("arrow.parquet.variant")


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    """The examples of the documentation run and print what they say."""
    result = doctest.testmod(import_module(name), report=True)
    assert result.attempted > 0
    assert result.failed == 0


def test_public_names_have_examples():
    """Each function and class that these packages export shows how it is called."""
    for package in ("arrow", "binary", "layouts", "parquet", "paths", "schema", "shredding", "stats", "z85"):
        module = import_module(f"delta_variant.{package}")
        for name in getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")]):
            public = getattr(module, name)
            if callable(public) and getattr(public, "__module__", "").startswith(module.__name__):
                assert ">>>" in (public.__doc__ or ""), f"{package}.{name}"

"""The package with the oldest and the newest versions that pyproject.toml allows, on each Python, and with each pair of Spark
and Delta: `make pins`.

Each case makes an environment in `.pins`, installs the package there, and runs in it the tests without Spark, and pages of the
documentation that write, query and explain a table in Spark and read it without. An environment that is there is brought up to
date. `make test` has no part of this: it downloads, and compiles all kernels for each version of Numba.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.versions import PROJECT, ROOT, other_pair, run_tests

PAIRS = [("4.0.1", "4.0.1"), *((spark, delta) for spark in ("4.0.1", "4.1.1") for delta in ("4.2.0", "4.3.1", "4.4.0"))]
"""Those that are supported, beside that of the extra `spark`."""
CASES = [("3.10", "oldest"), *((f"3.{minor}", "newest") for minor in range(10, 14))]
PAIR_TESTS = [
    "tests/pair.py",
    "tests/optimizer/test_skipping_generated.py",
    "tests/optimizer/test_typed_reading_generated.py",
    "tests/every_write/test_generated.py",
]
TOOLS = {"duckdb", "hypothesis", "polars", "pytest", "pytest-xdist", "pyyaml"}
"""What the tests need beside the oldest versions. Flask needs a newer click, and Hatchling newer packaging."""
WITHOUT_TOOLS = ["--ignore=tests/storage/test_locations.py", "--deselect=tests/docs/test_pages.py::test_the_site_builds"]
PAGES = ["tests/docs/test_pages.py", "-k", "README or other-libraries"]


def oldest() -> dict[str, Version]:
    """The lowest version that pyproject.toml allows, for each dependency and for those of `spark` and `plot`."""
    found = {}
    extras = PROJECT["optional-dependencies"]
    for text in [*PROJECT["dependencies"], *extras["spark"], *extras["plot"]]:
        requirement = Requirement(text)
        [lowest] = [one.version for one in requirement.specifier if one.operator in {">=", "=="}]
        found[canonicalize_name(requirement.name)] = Version(lowest)
    return found


def tools() -> list[str]:
    return [text for text in PROJECT["optional-dependencies"]["dev"] if Requirement(text).name in TOOLS]


def interpreter(version: str) -> str:
    """A Python of this version, of pyenv or on the PATH. Skips the test if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for found in [*pyenv.glob(f"versions/{version}.*/bin/python"), shutil.which(f"python{version}")]:
        if found is not None and b"ok" in subprocess.run([found, "-c", "print('ok')"], capture_output=True, check=False).stdout:
            return str(found)
    pytest.skip(f"there is no Python {version}: install it, for example with pyenv")


def environment(version: str, end: str) -> str:
    """The Python of an environment with the package and the tools for tests, up to date."""
    home = ROOT / ".pins" / f"{version}-{end}"
    python = str(home / "bin" / "python")
    if not Path(python).exists():
        subprocess.run([interpreter(version), "-m", "venv", home], check=True)
    install = [python, "-m", "pip", "install", "--quiet", "--progress-bar", "off", "--upgrade", "--upgrade-strategy", "eager"]
    subprocess.run([*install, "pip"], check=True)
    if end == "newest":
        subprocess.run([*install, "--editable", f"{ROOT}[spark,dev,plot]"], check=True)
    else:
        constraints = home / "constraints.txt"
        constraints.write_text("".join(f"{name}=={number}\n" for name, number in oldest().items()), encoding="utf-8")
        subprocess.run([*install, "--constraint", constraints, "--editable", f"{ROOT}[spark,plot]", *tools()], check=True)
    return python


@pytest.mark.parametrize(("version", "end"), CASES, ids=["-".join(case) for case in CASES])
def test_versions(version, end):
    """The tests without Spark, and the README with Spark, pass with these versions, and `oldest` are the lowest versions."""
    python = environment(version, end)
    listed = subprocess.run([python, "-m", "pip", "list", "--format=json"], check=True, capture_output=True, text=True).stdout
    found = {canonicalize_name(one["name"]): Version(one["version"]) for one in json.loads(listed)}
    print(f"\nPython {version}:", ", ".join(f"{name} {found[name]}" for name in oldest()), flush=True)
    if end == "oldest":
        assert {name: found[name] for name in oldest()} == oldest()
    tests = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    without_spark = ["-m", "not spark and not slow", "-n", "2", "--dist", "loadfile"]
    subprocess.run([*tests, *without_spark, *(WITHOUT_TOOLS if end == "oldest" else [])], cwd=ROOT, check=True)
    subprocess.run([*tests, *PAGES], cwd=ROOT, check=True)


@pytest.mark.parametrize(("spark", "delta"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_pairs(spark, delta):
    """Writes, skipping, typed reading, DML, `analyze`, `optimize`, ingestion and streams work on the pair; queries and
    statements that are generated give what they give in a plain session."""
    run_tests(other_pair(spark, delta), *PAIR_TESTS)

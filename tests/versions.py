"""Which peers are installed, and other pairs of Spark and Delta. The oldest that the package supports cannot do all that the
tests ask of the newest."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYARROW = int(pa.__version__.partition(".")[0])
DUCKDB = int(duckdb.__version__.partition(".")[0])


def needs_pyarrow(version: int, why: str) -> pytest.MarkDecorator:
    """Skips a test, or a case of one, with an older pyarrow. why: what the older one cannot do."""
    return pytest.mark.skipif(version > PYARROW, reason=f"pyarrow before {version} {why}")


def needs_duckdb(version: int, why: str) -> pytest.MarkDecorator:
    """Skips a test with an older DuckDB. why: what the older one cannot do."""
    return pytest.mark.skipif(version > DUCKDB, reason=f"DuckDB before {version} {why}")


def other_pair(spark: str, delta: str) -> str:
    """The Python of an environment with this pair, and else with the packages of this environment."""
    home = ROOT / ".pins" / f"spark-{spark}-delta-{delta}"
    python = home / "bin" / "python"
    done = home / "installed"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", home], check=True)
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
        # PySpark asks for exactly one version of py4j, and delta-spark's metadata refuse some pairs that Delta has JARs for.
        install = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--progress-bar",
            "off",
            "--no-deps",
            "--target",
            packages,
        ]
        subprocess.run([*install, f"pyspark=={spark}", f"delta-spark=={delta}"], check=True)
        (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        done.touch()
    return str(python)


def run_tests(python: str, *arguments: str) -> None:
    """Runs tests with the Python of an environment. Fails if one does."""
    command = [python, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]

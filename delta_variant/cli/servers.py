"""The command for servers and drivers without Python: jar."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import click

from delta_variant import jvm
from delta_variant.cli.shared import command, running, step

EXTENSIONS = f"io.delta.sql.DeltaSparkSessionExtension,{jvm.PACKAGE}.Extensions"
"""The setting spark.sql.extensions of a session with Delta and this package."""


@command(
    "jar",
    "delta-variant jar --output delta-variant.jar",
    "delta-variant jar --output jars/ --conf spark.jars=/opt/delta/delta-spark.jar,/opt/delta/delta-storage.jar",
)
@click.option(
    "--output", required=True, type=click.Path(path_type=Path),
    help="A file that ends in .jar, or a directory; there its name has the versions.",
)  # fmt: skip
def jar_command(output: Path, conf: dict[str, str], as_json: bool) -> None:
    """Write the JAR for spark-sql, Thrift and Connect servers, and Scala drivers.

    It is for the Spark and the Delta of this environment alone, and is compiled if there is none. A session with the JAR, and
    with the setting spark.sql.extensions as shown, starts a Python process, which needs this package.
    """
    with running("jar", conf) as spark, step("Making the JAR"):
        jar = jvm.loaded(spark).jar.path
        file = output if output.suffix == ".jar" and not output.is_dir() else output / jar.name
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as folder:
            shutil.copyfile(jar, Path(folder, file.name)).replace(file)
    if as_json:
        click.echo(json.dumps({"jar": str(file), "extensions": EXTENSIONS}))
    else:
        click.echo(f"{file}\n\n  --jars {file}\n  --conf spark.sql.extensions={EXTENSIONS}")

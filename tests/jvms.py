"""JVMs of test processes: Delta's JARs are on their class path, and an archive has the classes that most of them load.

A driver that starts, writes, queries and ends took 17.9 s of processor time with JARs that Ivy resolves, 15.3 s with JARs on
the class path, and 10.8 s with the archive too. The archive is made once for the JARs of an environment and kept in pytest's
cache directory. A JVM with another class path, such as one that begins with a directory, does without it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = """
import sys, tempfile
from pyspark.sql import SparkSession
import delta_variant as dv
builder = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    .config("spark.driver.extraJavaOptions", "-XX:+IgnoreUnrecognizedVMOptions -XX:ArchiveClassesAtExit=" + sys.argv[1])
)
dv.configure(builder)._options.pop("spark.jars.packages")
spark = builder.getOrCreate()
dv.enable(spark)
with tempfile.TemporaryDirectory() as folder:
    rows = spark.range(0, 10, 1, 2).selectExpr("id", "parse_json(to_json(struct(id))) v")
    for _ in range(2):
        dv.write(rows, folder + "/t", shred={"v": "id bigint"})
    found = spark.sql(f"select sum(v:id::bigint) from delta.`{folder}/t` where v:id::bigint > 4")
    assert found.first()[0] == 70
    dv.explain(found)
spark.stop()
"""


def environment(spark: SparkSession, folder: Path) -> dict[str, str]:
    """Environment variables for a process that starts JVMs, drivers and executors. One process at a time may call this.

    A driver whose builder has no `spark.jars.packages` resolves nothing. folder: where the archive is, or is made.
    """
    # Only Delta's JARs: the others would shadow Spark's versions of the same.
    jars = [jar for jar in spark.sparkContext.getConf().get("spark.jars", "").split(",") if "/io.delta_" in jar]
    class_path = [jar.removeprefix("file://") for jar in jars]
    known = {"SPARK_DIST_CLASSPATH": os.pathsep.join(class_path)}
    archive = folder / f"{_digest(class_path)}.jsa"
    if not archive.exists():
        for old in folder.glob("*.jsa"):
            old.unlink()
        new = archive.with_suffix(".new")
        here = {**os.environ, **known, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([sys.executable, "-c", PROGRAM, new], env=here, capture_output=True, check=True)
        if new.exists():  # not every JVM makes archives
            new.rename(archive)
    options = os.environ["JAVA_TOOL_OPTIONS"]
    if archive.exists():
        options += f" -XX:SharedArchiveFile={archive} -Xlog:disable"  # silent where the class path is another one
    return {**known, "JAVA_TOOL_OPTIONS": options}


def _digest(class_path: list[str]) -> str:
    """Of what a JVM compares with an archive: itself and the JARs, with their sizes and times."""
    home = os.environ.get("JAVA_HOME")
    java = Path(shutil.which("java", path=f"{home}/bin" if home else None) or "").resolve()
    jars = sorted(Path(pyspark.__file__).parent.glob("jars/*.jar"))
    files = [(str(file), file.stat().st_size, file.stat().st_mtime) for file in (java, *jars, *map(Path, class_path))]
    return hashlib.blake2s(repr((files, os.environ["JAVA_TOOL_OPTIONS"])).encode(), digest_size=8).hexdigest()

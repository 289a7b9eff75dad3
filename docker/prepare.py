"""What the image has before it starts: the JARs that spark-defaults.conf names, the package's own, and kernels.

`enable` compiles the package's own JAR. Then a table is loaded from JSON, queried, indexed, clustered, shredded and unshredded,
so that each kernel is compiled for the types that these commands give it. Kernels for other types are compiled where they are
first used. The JAR and the kernels stay in NUMBA_CACHE_DIR.
"""

import json
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import delta_variant as dv
from delta_variant import shredding

builder = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
)
spark = dv.configure(builder).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
dv.enable(spark)

with tempfile.TemporaryDirectory() as folder:
    source, target = Path(folder, "source.json"), f"{folder}/table"
    values = {
        "s": "x",
        "f": 0.5,
        "d": 2.15,
        "b": True,
        "t": "2026-11-01T12:00:00Z",
        "n": None,
        "big": 1 << 70,
        "esc": '"\\\u00e9',
    }
    rows = [
        {"id": n, **values, "o": {"a": n, "l": [1, "x", None], "c": [n, n + 1]}, "m": n if n % 2 else "x"} for n in range(5000)
    ]
    source.write_text("\n".join(map(json.dumps, rows)))
    dv.ingest(spark, str(source), target)
    table = dv.VariantTable.forPath(spark, target)
    table.analyze(bloom=["v:id", "v:s"], budget=0.5)
    table.analyze(paths=["v:o.a"])
    table.optimize(cluster_by=["v:id", "v:d"])
    table.unshred()
    table.shred()
    column = dv.parquet.read_table(next(Path(target).rglob("*.parquet")))["v"]
    shredding.unshred(shredding.shred(column.combine_chunks(), dv.schema.infer(column.combine_chunks())))
    spark.sql(f"SELECT v FROM delta.`{target}` WHERE v:id::bigint = 5").collect()
spark.stop()

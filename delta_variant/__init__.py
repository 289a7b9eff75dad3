"""delta-variant: shredded VARIANT columns for PySpark and Delta Lake.

    import delta_variant as dv

    spark = dv.configure(SparkSession.builder).getOrCreate()
    dv.enable(spark)                        # queries skip files by Variant path, every Delta write is shredded
    dv.write(df, "/data/events")            # shredded, with bounds in the Delta log
    dv.ingest(spark, "logs/*.json.gz", "/data/events")
    print(dv.explain(spark.sql("…")))       # files in the table, left by Delta, left by us

Without Spark: `dv.binary`, `dv.schema`, `dv.shredding`, `dv.layouts`, `dv.arrow`, `dv.parquet`, `dv.stats`. Names are imported
when they are first used, so these modules need neither PySpark nor a JVM.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from delta_variant.version import __version__

if TYPE_CHECKING:
    from delta_variant import arrow, binary, errors, layouts, parquet, schema, shredding, stats
    from delta_variant.analysis import Analyzed
    from delta_variant.conversion import Converted, convert
    from delta_variant.explanation import Report, Scan, explain
    from delta_variant.ingestion import Ingested, ingest
    from delta_variant.progress import Progress
    from delta_variant.rewriting.advice import Advice
    from delta_variant.rewriting.driver import Rewritten
    from delta_variant.scanning.dataset import dataset
    from delta_variant.scanning.reader import scan
    from delta_variant.session import configure, disable, enable
    from delta_variant.table import VariantTable
    from delta_variant.writer import Commit, foreach_batch, write

_MODULE_OF = {
    "Advice": "rewriting.advice",
    "Analyzed": "analysis",
    "Commit": "writer",
    "Converted": "conversion",
    "Ingested": "ingestion",
    "Progress": "progress",
    "Report": "explanation",
    "Rewritten": "rewriting.driver",
    "Scan": "explanation",
    "VariantTable": "table",
    "configure": "session",
    "convert": "conversion",
    "dataset": "scanning.dataset",
    "disable": "session",
    "enable": "session",
    "explain": "explanation",
    "foreach_batch": "writer",
    "ingest": "ingestion",
    "scan": "scanning.reader",
    "write": "writer",
}
_MODULES = ("arrow", "binary", "errors", "layouts", "parquet", "schema", "shredding", "stats")

__all__ = [
    "Advice",
    "Analyzed",
    "Commit",
    "Converted",
    "Ingested",
    "Progress",
    "Report",
    "Rewritten",
    "Scan",
    "VariantTable",
    "__version__",
    "arrow",
    "binary",
    "configure",
    "convert",
    "dataset",
    "disable",
    "enable",
    "errors",
    "explain",
    "foreach_batch",
    "ingest",
    "layouts",
    "parquet",
    "scan",
    "schema",
    "shredding",
    "stats",
    "write",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name in _MODULE_OF:
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

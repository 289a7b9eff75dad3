"""`VariantTable`: a Delta table's bounds as data and as a plot, the operations that improve its files, and the switch for
shredding.

In: a table, and for plots a path such as `v:actor.id`. Out: the bounds of the log, decoded by Delta, as a DataFrame with a
row for each file and path, which scales as Delta's own statistics do; or a plot of every file's range. Source: Delta
variantShredding, "Statistics for Variant Columns". The switches change the table's properties, `analyze` the statistics of its
files; `convert` replaces the files.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import VariantType, VariantVal

from delta_variant import jvm, mapping
from delta_variant.analysis import Analyzed, analyze, inspected
from delta_variant.constants import PREVIEW_NAMES
from delta_variant.errors import DeltaVariantError, InvalidSchemaError, TableError
from delta_variant.features import SHREDDING_PROPERTY, VARIANT_FEATURES
from delta_variant.paths import dotted, normalized, parse_bounded_path, quoted
from delta_variant.progress import Progress
from delta_variant.rewriting import driver as rewriting
from delta_variant.rewriting.advice import Advice, advise
from delta_variant.rewriting.driver import Rewritten
from delta_variant.rewriting.feature import drop_feature
from delta_variant.stats import TYPED_TAG_VALUE
from delta_variant.summary import common_type, summary
from delta_variant.transaction import Table, bounded_columns, own_session
from delta_variant.writer import Commit
from delta_variant.writer.arguments import Request
from delta_variant.writer.driver import retype
from delta_variant.writer.json_texts import check_mapping
from delta_variant.writer.shredding_schemas import Shred

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SCHEMA = "file string, column string, path string, type string, min variant, max variant, source string"


class VariantTable:
    """A Delta table with VARIANT columns.

    `forPath` and `forName` make one. They raise TableError if there is no Delta table.
    """

    def __init__(self, table: Table) -> None:
        if not table.exists():
            raise TableError(f"{table.name} is not a Delta table")
        self._table = table

    @contextmanager
    def _own(self) -> Iterator[Table]:
        """The table in a session of its own, in which a file that cannot be read is an error: its rows would be lost."""
        with own_session(self._table.spark) as spark:
            for files in ("Missing", "Corrupt"):
                spark.conf.set(f"spark.sql.files.ignore{files}Files", "false")
            yield replace(self._table, spark=spark)

    @classmethod
    def forPath(cls, spark: SparkSession, path: str | os.PathLike[str]) -> VariantTable:  # noqa: N802  # as DeltaTable has it
        """The table in a directory.

        Example:
            table = dv.VariantTable.forPath(spark, "/data/events")
        """
        return cls(Table.of(spark, f"delta.{quoted(str(path))}"))

    @classmethod
    def forName(cls, spark: SparkSession, name: str) -> VariantTable:  # noqa: N802
        """The table of a name in the session's catalog.

        Example:
            table = dv.VariantTable.forName(spark, "events")
        """
        return cls(Table.of(spark, name))

    def toDF(self) -> DataFrame:  # noqa: N802
        """The table's rows.

        Example:
            table.toDF().selectExpr("v:id::bigint").show()
        """
        return self._table.spark.table(self._table.name)

    def enable_shredding(self) -> int:
        """Makes later writes shred VARIANT columns. Existing files stay as they are.

        Example:
            table.enable_shredding()

        Sets `delta.enableVariantShredding` to `true`, and adds the table features that this needs. A table with the preview
        feature for VARIANT gets the preview feature for shredding, because its readers support the previews. Returns the
        version of the table. Raises TableError, with Delta's message, if the table cannot be altered.
        """
        return self._switch(on=True)

    def disable_shredding(self) -> int:
        """Makes later writes plain. Shredded files stay as they are.

        Example:
            table.disable_shredding()

        Sets `delta.enableVariantShredding` to `false`, and leaves the table features. Returns the version of the table. Raises
        TableError, with Delta's message, if the table cannot be altered.
        """
        return self._switch(on=False)

    def analyze(
        self,
        columns: Sequence[str] | None = None,
        paths: Sequence[str] | None = None,
        where: str | None = None,
        *,
        tags_only: bool = False,
        bloom: Sequence[str] | None = None,
        budget: float | None = None,
        progress: Callable[[Progress], object] | None = None,
    ) -> Analyzed:
        """Give exact bounds to the files that lack them, whoever wrote them, without rewriting data.

        Example:
            table.analyze()
            table.analyze(paths=["v:actor.id"], where="day >= '2026-11-01'")
            table.analyze(bloom=["v:commit.cid"])

        Files without the marker of this package get the bounds that `write` would have given them. They come from the footer,
        from typed columns, or from the whole VARIANT column: the cheapest that suffices. A path whose values are
        all in a typed column is read from it afterwards. Statistics of other columns stay as they are.

        columns: the VARIANT columns, by default all that have statistics. paths: paths (`v:actor.id`) that are to have bounds
        in every file, beyond the usual number of paths, and also in files that have bounds for others; if their values are
        strings, they are also parsed as ISO 8601 times. where: a predicate on partition columns. tags_only: puts bounds
        into the tags of this package, which have little room, so that the table does not need the feature variantShredding.
        Otherwise a table without this feature gets it. progress: called after each commit.

        bloom: paths of strings, integers or decimals that queries look up by `=` or IN, and whose values are scattered over all
        files. For each of these paths, each file that lacks a filter gets one, which says whether a value may be in the file.
        Filters are stored beside the data. With bloom alone nothing else is done. Without all three, the paths are those of
        the table properties `delta_variant.bloom.<column>`, by which `write` makes filters too. budget: the share of
        a file's bytes that its filters may take, by default that of the property `delta_variant.indexBudget`, or 0.01. 7 bits
        per value give a false-positive rate of 2 %, 10 bits 0.2 %. A path without room for 2 bits per value has no filter; the
        result counts such files.

        There is a commit for every 5,000 files or so. After a failure, the next call does what is left. A file that another
        writer changes or removes in between is left out, as is one that cannot be read; the result names both. Raises
        InvalidSchemaError for a column that is not VARIANT and for a text in place of a list, InvalidPathError for a text
        that is not a path and for a path into an array, UnsupportedFeatureError if the table has IcebergCompat and would get a
        feature, TableError for what Delta refuses and if Delta keeps no statistics of the columns. All arguments are
        checked before the table is changed.
        """
        with self._own() as table:
            return analyze(table, columns, paths, where, tags_only=tags_only, bloom=bloom, budget=budget, progress=progress)

    def convert(
        self,
        parse_json: Mapping[str, str],
        *,
        shred: Shred | Mapping[str, str | pa.DataType] = "auto",
        cluster_by: Sequence[str] = (),
        compression: str | None = None,
        max_rows_per_file: int | None = None,
        user_metadata: str | None = None,
        on_error: Literal["fail", "null"] = "fail",
        corrupt: str | None = None,
    ) -> Commit:
        """Make VARIANT columns of columns with JSON texts, in one commit that rewrites all rows.

        Example:
            table.convert({"v": "value"})

        parse_json: {"v": "value"} makes the VARIANT column v of the texts in the STRING or BINARY column value, and replaces
        that column; {"value": "value"} keeps the name. The other arguments are those of `write`; the column of `corrupt`
        becomes the last one. A table without VARIANT columns gets `delta.enableVariantShredding`, unless it is set or `shred`
        is False.

        Everything else stays: the order, types, comments, defaults and NOT NULL of columns, partitioning, clustering columns,
        constraints, properties. Earlier versions can be read as before. Streams from the table end with Delta's error, since
        its schema changes. For a new table use `write(table.toDF(), …, parse_json=…)`.

        Returns the commit. If the columns are VARIANT already, nothing is committed, so the same call can be repeated. Raises
        UnsupportedFeatureError, by name, for a constraint, generated column, default value, clustering or property that uses
        such a column, and for a table with row ids, which would change; and what `write` raises with parse_json.
        """
        check_mapping(parse_json)
        df = self.toDF()
        fields = {field.name: field.dataType for field in df.schema}
        done = [isinstance(fields.get(v), VariantType) and (v == text or text not in fields) for v, text in parse_json.items()]
        if done and all(done):
            return Commit(int(self._table.snapshot().version()), 0, 0, 0, ())
        request = Request.of(
            df, "overwrite", shred=shred, cluster_by=cluster_by, overwrite_schema=True, compression=compression,
            max_rows_per_file=max_rows_per_file, user_metadata=user_metadata, parse_json=parse_json, on_error=on_error,
            corrupt=corrupt,
        )  # fmt: skip
        if not request.texts.columns:
            raise InvalidSchemaError("parse_json is empty: name the VARIANT columns and the columns with their texts")
        with self._own() as table:
            return retype(table, request)

    def optimize(
        self,
        cluster_by: Sequence[str] | None = None,
        where: str | None = None,
        max_file_size: int | None = None,
        *,
        progress: Callable[[Progress], object] | None = None,
    ) -> Rewritten:
        """Rewrite files so that each holds a narrow range of the clustering keys, shredded, and with bounds.

        Example:
            table.optimize(cluster_by=["v:actor.id"])
            table.optimize(cluster_by=["v:actor.id", "v:ts"], where="day >= '2026-11-01'")

        cluster_by: paths of VARIANT columns (`v:actor.id`) and columns (`id`). One key orders rows by range, several along a
        Hilbert curve. By default, the keys that `cluster_by` has stored; without any, small files are put together. where: a
        predicate on partition columns. max_file_size: the size in bytes that new files are not to exceed by much, by default
        `delta.targetFileSize` or 128 MiB. progress: called after each commit.

        Files that are in order already are left alone, by their bounds, so that a second call does nothing. Files that were
        added since are merged into the order when they have a quarter of its size; until then they are put in an order of
        their own. Each file has a shredding schema of its own. A file with a deletion vector for more than 5 % of its rows is
        rewritten too. The rows stay the same, with their row ids.

        Each job has a commit. After a failure, the next call does what is left. Commits of other writers that add files do not
        conflict. If one changes or removes the same files, the job is begun again without them. Raises InvalidSchemaError and
        InvalidPathError for keys that are neither a column nor a path, UnsupportedFeatureError for a table that Delta clusters
        itself, TableError for what Delta refuses and for a column without statistics, ConflictError after several conflicts.
        """
        with self._own() as table:
            return rewriting.optimize(table, cluster_by, where, max_file_size, progress)

    def cluster_by(self, keys: Sequence[str] | None) -> int:
        """Store the keys by which `optimize` orders rows, in the property `delta_variant.clusterBy`; None removes them.

        Example:
            table.cluster_by(["v:kind", "v:ts"])

        Later writes give these paths bounds before others. Returns the version of the table. Raises what `optimize` raises for
        keys.
        """
        with self._own() as table:
            return rewriting.cluster_by(table, keys)

    def advise(self, queries: Iterable[str | DataFrame] | None = None) -> list[Advice]:
        """Suggests what would make these queries open fewer files, the best first: clustering keys, and paths that need bounds
        or shredding.

        Example:
            for advice in table.advise(["SELECT count(*) FROM events WHERE v:actor.id::bigint = 77"]):
                print(advice.files_saved, advice.call, advice.reason)

        queries: SQL texts and DataFrames that read this table; by default the last 50 different queries over Variants that
        this session has run since `enable`. They are planned, not run, in a session with `enable`. There is an estimate of
        the files that each advice saves, from the overlap of bounds; a path without bounds has no advice on clustering until
        it has some. Raises SessionError in a session without `enable`, TableError if no query reads the table, and
        InvalidSchemaError for a single query instead of a list.
        """
        return advise(self._table, queries)

    def shred(self, where: str | None = None, *, progress: Callable[[Progress], object] | None = None) -> Rewritten:
        """Rewrite plain files as shredded ones, and files of other writers that have open objects: one new file for each.

        Example:
            table.enable_shredding()
            table.shred()

        An object is open if some of its fields have no columns: other engines then read no path inside it from a typed
        column. Such files are rewritten if they have 8,192 rows or more, and if the table has no shredding schema for the
        column or asks for closed objects. where: a predicate on partition columns. progress: called after each commit. Files
        stay as they are if this package has left them plain, because shredding would make them larger, or if `analyze` has
        marked them as read from typed columns. Commits, failures and conflicts are as for `optimize`. Raises TableError if the
        table must not have shredded files, and for what Delta refuses.
        """
        with self._own() as table:
            return rewriting.reorganize(table, where, progress, shreds=True)

    def unshred(self, where: str | None = None, *, progress: Callable[[Progress], object] | None = None) -> Rewritten:
        """Rewrite shredded files as plain ones, one new file for each. They have no bounds.

        Example:
            table.disable_shredding()
            table.unshred()

        where: a predicate on partition columns. progress: called after each commit. Commits, failures and conflicts are as for
        `optimize`. Raises TableError for what Delta refuses.
        """
        with self._own() as table:
            return rewriting.reorganize(table, where, progress, shreds=False)

    def drop_feature(self, *, progress: Callable[[Progress], object] | None = None) -> int:
        """Take the feature for shredding out of the table's protocol, so that readers need not know it.

        Example:
            table.drop_feature()

        Shredded files are rewritten, plain, and bounds of VARIANT columns leave the log. The protocol then gets the writer
        feature `checkpointProtection`, as with Delta's DROP FEATURE: readers that know the dropped feature read the whole
        history, others the versions from this one on. progress: called after each commit that rewrites files. Returns the
        version of the table. Raises TableError if the protocol does not name the feature, if other writers add shredded files
        meanwhile, and for what Delta refuses.
        """
        with self._own() as table:
            return drop_feature(table, progress)

    def inspect(self) -> DataFrame:
        """What the files of the newest version hold: one row for each file, VARIANT column and path of its shredding schema.

        Example:
            table.inspect().where("residual > 0").orderBy(F.desc("residual_bytes")).show()

        It is computed from the files' footers, which tasks read when the DataFrame is used. The columns are:

        * file: the path in the Add action.
        * column: the logical name of the VARIANT column as queries write it (`s.w`, `` `a.b` ``).
        * layout: `final`, `draft` (VariantShredding before its adoption) or `first` (Spark's first layout).
        * schema: the shredding schema of the file as DDL, null for a plain column and for older layouts.
        * rows: the number of rows of the file.
        * path: a normalized path; `[*]` stands for the elements of an array. A plain column has `$` alone.
        * type: the type of the typed column, or `object` or `array`.
        * typed, residual: how many values are in the typed column, and how many beside it in `value`; null if the footer does
          not say.
        * bytes, residual_bytes: the compressed sizes of both.
        * proven: whether queries may read the path from its typed column, by the footer or by the log.
        * open: whether an object has more than JSON nulls in its `value`, such as fields without columns.
        * ours: whether `write` or a command of an enabled session wrote the file.
        * min, max: the bounds in the log as JSON, null if there are none.
        * error: why the file cannot be read, else null.
        """
        files = inspected(self._table)
        typed = (
            self._files()[0]
            .where(F.col("mark") == TYPED_TAG_VALUE)
            .select(F.col("path").alias("file"), F.lit(True).alias("is_typed"))
        )
        bounds = self.stats().join(typed, "file", "left")
        in_log = F.col("source") == "delta-variant"
        bounds = bounds.select(
            "file",
            "column",
            "path",
            F.to_json("min").alias("min"),
            F.to_json("max").alias("max"),
            (in_log & F.col("is_typed")).alias("is_typed"),
        )
        found = files.join(bounds, ["file", "column", "path"], "left")
        proven = (F.col("proven") | F.coalesce("is_typed", F.lit(False))).alias("proven")
        columns = [proven if name == "proven" else name for name in files.columns[:-1]]
        return found.select(*columns, "min", "max", "error")

    def stats(self, where: str | None = None) -> DataFrame:
        """The bounds in the log of the newest version: one row for each file, VARIANT column and path that has any.

        Example:
            table.stats().show()
            table.stats(where="day >= '2026-11-01'").show()

        where: a predicate on partition columns, which chooses files. Raises TableError for another predicate.

        The columns are:

        * file: the path in the Add action.
        * column: the logical name of the VARIANT column as queries write it (`s.w`, `` `a.b` ``).
        * path: a normalized path (RFC 9535).
        * type: the type of the bounds, as `schema_of_variant` writes it.
        * min, max: VARIANT, null if the file does not have this bound.
        * source: `delta-variant` if this package computed the bounds from the values; `writer` if another writer computed them;
          `tag` if they are bounds of the values that are not null, which are in a tag because the protocol has no place for
          them.
        """
        files, columns = self._files(where)
        source = F.when(F.col("mark").isNotNull(), "delta-variant").otherwise("writer")
        found = self._table.spark.createDataFrame([], _SCHEMA)
        tagged = files.select("path", F.explode(_mapped("nonnull", "map<string, array<variant>>")).alias("parent", "last"))
        tagged = tagged.select("path", "parent", F.explode("last").alias("step", "array"))
        for i, (physical, logical) in enumerate(columns):
            both = [_mapped(f"{side}{i}", "variant") for side in ("min", "max")]
            keys = F.array_union(*(F.coalesce(F.map_keys(bounds), F.array().cast("array<string>")) for bounds in both))
            stated = files.select("path", source.alias("source"), both[0].alias("low"), both[1].alias("high"), F.explode(keys))
            low, high = (F.try_element_at(F.col(side), F.col("col")) for side in ("low", "high"))
            found = found.union(_bounds(stated, logical, F.col("col"), low, high, F.col("source")))
            column = normalized(physical)
            whole = F.concat("parent", "step")
            of_column = tagged.where((whole == column) | whole.startswith(f"{column}["))
            path = F.concat(F.lit("$"), F.substring(whole, len(column) + 1, 1 << 30))
            low, high = (F.try_element_at("array", F.lit(position)) for position in (3, 4))
            low, high = (F.when(~F.is_variant_null(bound), bound) for bound in (low, high))
            of_column = of_column.where(low.isNotNull() | high.isNotNull())
            found = found.union(_bounds(of_column, logical, path, low, high, F.lit("tag")))
        return found

    def summary(self, where: str | None = None) -> DataFrame:
        """The bounds of all files put together: one row for each VARIANT column and path that any file has bounds for.

        Example:
            table.summary().orderBy("opened").show()

        where: a predicate on partition columns, which chooses files. The columns are:

        * column, path: as in `stats`.
        * type: the type that all bounds fit, or their types, with commas, if no scalar type fits them all.
        * min, max: the bounds of all files that have any, VARIANT. Null if they are of several kinds, or if one of these files
          does not have this bound.
        * files: how many files have bounds for the path.
        * files_total: how many files there are.
        * opened: how many files a look-up of a value of the path opens by its bounds: the median over the smallest and largest
          values of the files. 1 if no ranges overlap; files without bounds are always opened.
        """
        return summary(self.stats(where), self._files(where)[0].count())

    def plot(self, path: str) -> Figure:
        """Draws every file's range of values at a path, files with the smallest minimum first, so that overlaps are visible.

        Example:
            table.plot("v:id").savefig("ids.png")

        path: a column and a path in it (`v:actor.id`). Returns a matplotlib figure, which notebooks show. If a file has only
        one of the bounds, its line is dashed up to the edge. Strings are drawn by their order. If files have bounds of
        different types, only those of the most common type are drawn. Raises InvalidPathError, TableError if no file has bounds
        for the path, and DeltaVariantError if matplotlib is not installed.
        """
        try:
            from matplotlib.figure import Figure as New  # noqa: PLC0415  # an extra of this package
        except ImportError:
            raise DeltaVariantError("plot needs matplotlib: pip install 'delta-variant[plot]'") from None
        column, keys = parse_bounded_path(path)
        of_path = (F.lower("column") == dotted(column).lower()) & (F.col("path") == normalized(keys))
        rows = self.stats().where(of_path).select("min", "max")
        ranges = [(_drawn(low), _drawn(high)) for low, high in rows.collect()]
        types = Counter(_type_of(bounds) for bounds in ranges)
        if not types:
            raise TableError(f"no file of {self._table.name} has bounds for {path}: choose a path that `stats` lists")
        most_common = types.most_common(1)[0][0]
        drawn = [bounds for bounds in ranges if _type_of(bounds) is most_common]
        figure = New(figsize=(8, min(12, 2 + len(drawn) / 12)), layout="constrained")
        _draw(figure.add_subplot(), drawn, f"{path}: bounds of {len(drawn)} of {self._files()[0].count()} files")
        return figure

    def _switch(self, *, on: bool) -> int:
        features = self._table.features()
        properties = f"'{SHREDDING_PROPERTY}' = '{'true' if on else 'false'}'"
        if on and features.names.isdisjoint(VARIANT_FEATURES):
            properties += ", 'delta.feature.variantType' = 'supported'"
        with jvm.delta_errors(f"altering {self._table.name}"), self._own() as table:
            table.spark.conf.set(PREVIEW_NAMES, str(features.shredding_feature.endswith("-preview")).lower())
            table.spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ({properties})")
        return int(self._table.snapshot().version())

    def _files(self, where: str | None = None) -> tuple[DataFrame, list[tuple[tuple[str, ...], str]]]:
        """Returns the bounds in the log of the newest version, one row per file, and the VARIANT columns.

        where: a predicate on partition columns, which chooses files. `scala/LogStatistics.scala` describes the rows. A column
        is given by its physical names and its logical name; its index in the list is its number in the DataFrame.
        """
        spark = self._table.spark
        with jvm.delta_errors(f"reading the statistics of {self._table.name}"):
            snapshot = self._table.snapshot()
            statistics = self._table.statistics(snapshot)
            paths = mapping.physical_paths(json.loads(snapshot.schema().json()))
            logical = {physical: dotted(path) for path, physical in paths.items()}
            columns = bounded_columns(statistics)
            files = DataFrame(statistics.files(), spark)
            if where is not None:
                add_files = jvm.companion(spark, "AddFiles")
                predicates = add_files.predicates(spark._jsparkSession, snapshot.metadata(), where)  # noqa: SLF001  # no public name
                chosen = DataFrame(add_files.of(snapshot.metadata(), snapshot.allFiles(), predicates), spark)
                files = files.join(chosen.select("path"), "path", "left_semi")
            return files, [(names, logical[names]) for names in columns]


def _mapped(column: str, values: str) -> Column:
    """A column of bounds, which are Variant objects, as a map from their keys."""
    return F.try_variant_get(F.col(column), "$", f"map<string, {values}>")


def _bounds(rows: DataFrame, column: str, path: Column, low: Column, high: Column, source: Column) -> DataFrame:
    return rows.select("path", F.lit(column), path, common_type(F.schema_of_variant, low, high), low, high, source)


# ---- the plot --------------------------------------------------------------------------------------------------------


Range = tuple[Any, Any]


def _drawn(bound: VariantVal | None) -> Any:
    """A bound as a value that matplotlib can draw."""
    value = None if bound is None else bound.toPython()
    return float(value) if isinstance(value, (int, Decimal)) else value


def _type_of(bounds: Range) -> type:
    return type(next(end for end in bounds if end is not None))


def _draw(axes: Axes, ranges: list[Range], title: str) -> None:
    ends = [end for bounds in ranges for end in bounds if end is not None]
    texts = sorted({end for end in ends if isinstance(end, str)}, key=str.encode)
    if texts:
        rank = {text: i for i, text in enumerate(texts)}
        ranges = [(rank.get(low), rank.get(high)) for low, high in ranges]
        ends = list(rank.values())
        shown = range(0, len(texts), -(-len(texts) // 10))
        axes.set_xticks(list(shown), [texts[i][:12] for i in shown], rotation=30, ha="right")
    edges = min(ends), max(ends)
    whole = [tuple(edge if end is None else end for end, edge in zip(bounds, edges, strict=True)) for bounds in ranges]
    order = sorted(range(len(ranges)), key=whole.__getitem__)
    for style in ("solid", "dashed"):
        rows = [row for row, i in enumerate(order) if (None in ranges[i]) == (style == "dashed")]
        lows, highs = ([whole[order[row]][side] for row in rows] for side in (0, 1))
        axes.hlines(rows, lows, highs, linestyles=style, linewidth=2)
        axes.plot([*lows, *highs], [*rows, *rows], "|", color="tab:blue")
    axes.set(title=f"{title}, at most {_overlap(whole)} overlap", ylabel="files", yticks=[])


def _overlap(ranges: list[Range]) -> int:
    """The largest number of ranges that one value lies in."""
    lows, highs = sorted(low for low, _ in ranges), sorted(high for _, high in ranges)
    return max(bisect_right(lows, low) - bisect_left(highs, low) for low in lows)

"""Exact bounds of one data file: from its footer, from typed columns, or from the whole VARIANT column.

In: an Add action's path, statistics and tags, and the file. Out: other statistics and tags for the action. Source: Delta
variantShredding, "Statistics for Variant Columns"; `protocol/README.md`, "Bounds in the log" and "The tags".

If the footer proves the bounds of a typed column (`parquet.statistics`), the column is not read. Otherwise it is read alone, or
with the `value`s on which its bounds depend. A plain column, or one in an older layout, is read as a whole and shredded in
memory by the schema that `write` would infer.

Invariants: bounds are those that `write` would have given the same rows. Statistics of other columns are kept byte for byte.
Memory is bounded by a batch of 8 MiB and the sample for inference.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from delta_variant import layouts, nested, schema, shredding, stats
from delta_variant.analysis.plan import AnalysisPlan, AnalyzedColumn
from delta_variant.errors import DeltaVariantError
from delta_variant.locating import in_rows, naming
from delta_variant.messages import AnalysisReport, AnalyzedFile
from delta_variant.parquet import columns
from delta_variant.parquet.columns import TypedColumn
from delta_variant.parquet.statistics import Footer, PathStatistics, UnreadLeaves
from delta_variant.paths import ColumnPath, dotted, parse_normalized
from delta_variant.schema.of_files import SAMPLE_BYTES, SAMPLE_ROWS, Inference, named_apart
from delta_variant.stats import rewriting, variants
from delta_variant.stats.files import MAX_BOUNDS_SIZE, MAX_PATHS
from delta_variant.stats.values import Extremes, has_order
from delta_variant.stats.variants import VariantStats
from delta_variant.types import is_string

SOURCES = ("footer", "columns", "values")
"""The sources of bounds: the footer, typed columns, whole VARIANT columns."""
_TAGS = (stats.BOUNDS_TAG, stats.NONNULL_TAG, stats.TIMES_TAG)
_PATH_SIZE = 128  # more characters of bounds for each path that is asked for by name


def analyze_file(source: Any, file: AnalyzedFile, plan: AnalysisPlan, inference: Inference) -> AnalysisReport | None:
    """Computes the bounds of a file for the log. Returns None if the log has all that is asked for.

    source: the open data file. file: what the log has. inference: the numbers of the files of this task so far, as in `write`.
    Raises InvalidLayoutError, MalformedVariantError, and DeltaVariantError for damaged statistics.
    """
    todo = _todo(file, plan)
    if not todo:
        return None
    opened = columns.opened(source)
    groups = [columns.group_of(opened.schema_arrow, one.column.names, one.column.ids) for one in todo]
    parquet = columns.Columns(opened, {group for group in groups if group is not None})
    footer = Footer(parquet.metadata)
    for one, group in zip(todo, groups, strict=True):
        if group is not None:
            with naming(f"column {dotted(group)}"):
                _Reading(one, parquet, group, footer, inference).run()
    marker, tags = _marked(todo, plan)
    changes: dict[ColumnPath, str | None] = {}
    if rewriting.member(file.stats, ("numRecords",)) is None:
        changes[("numRecords",)] = str(parquet.metadata.num_rows)
    for one in todo:
        changes |= {
            (bounds, *one.column.names): one.stats.bound(side) for side, bounds in enumerate(("minValues", "maxValues"))
        }
    others = {name: text for name, text in file.tags.items() if name not in _TAGS}
    analyzed = AnalysisReport(
        file.file,
        stats=rewriting.replaced(file.stats, changes),
        tags={**others, stats.BOUNDS_TAG: marker, **tags},
        rows=parquet.metadata.num_rows,
        source=max((one.source for one in todo), key=SOURCES.index),  # the last one that was needed
    )
    return None if analyzed.stats == file.stats and analyzed.tags == dict(file.tags) else analyzed


class _Computation:
    """A column of a file whose bounds are computed.

    kept: the paths for which this package gave the file bounds before. read: the paths whose strings are read for the times
    that they spell.
    """

    def __init__(
        self, column: AnalyzedColumn, plan: AnalysisPlan, file: AnalyzedFile, kept: Sequence[ColumnPath], read: set[ColumnPath]
    ) -> None:
        self.column, self.read = column, read
        wanted = frozenset([*column.paths, *kept])
        budget = MAX_BOUNDS_SIZE // len(plan.columns) + _PATH_SIZE * (len(wanted) - min(len(kept), MAX_PATHS))
        first = list(dict.fromkeys([*column.paths, *kept, *column.first]))
        self.stats = VariantStats(plan.string_prefix, 0 if kept else MAX_PATHS, budget, first, wanted)
        null_rows = rewriting.member(file.stats, ("nullCount", *column.names))
        self.null_rows = int(null_rows) if null_rows is not None and null_rows.isdecimal() else None
        self.source = SOURCES[0]
        self.is_typed = True
        """Whether all values of paths with bounds are in typed columns, where readers find them."""
        self.misread: list[ColumnPath] = []
        """Paths with bounds whose typed column Spark may read differently from its scan of the VARIANT column."""


def _todo(file: AnalyzedFile, plan: AnalysisPlan) -> list[_Computation]:
    """The columns of a file whose bounds are to be computed."""
    is_marked = file.tags.get(stats.BOUNDS_TAG) in stats.BOUNDS_TAG_VALUES
    has_lost = plan.loses_bounds and not any(_text(file, column, "minValues") for column in plan.columns)
    if is_marked and not plan.by_name and not has_lost:
        return []
    todo, lacking = [], not is_marked or has_lost
    for column in plan.columns:
        bounds, tagged, times = _known(file, column)
        known = bounds | tagged
        lacking |= column.asked and not (known.issuperset(column.paths) if column.paths else known)
        if column.asked or known or _text(file, column, "minValues") or _text(file, column, "maxValues"):
            kept = sorted(bounds) if is_marked else []
            todo.append(_Computation(column, plan, file, kept, {*column.paths, *times}))
    return todo if lacking else []


def _known(file: AnalyzedFile, column: AnalyzedColumn) -> tuple[set[ColumnPath], set[ColumnPath], set[ColumnPath]]:
    """The paths of a column that the log has: in its bounds, in the tag of nulls, and in the tag of times."""
    bounds: set[ColumnPath] = set()
    for side in ("minValues", "maxValues"):
        with suppress(DeltaVariantError):
            bounds |= {parse_normalized(path) for path in stats.decode_bounds(_text(file, column, side))}
    tagged, times = (set(_tagged(file.tags.get(tag), column.names)) for tag in (stats.NONNULL_TAG, stats.TIMES_TAG))
    return bounds, tagged, times


def _text(file: AnalyzedFile, column: AnalyzedColumn, side: str) -> str:
    """The text of a column's bounds in the statistics, "" if there are none."""
    text = rewriting.member(file.stats, (side, *column.names))
    return str(json.loads(text)) if text is not None and text.startswith('"') else ""


def _tagged(text: str | None, names: ColumnPath) -> Iterator[ColumnPath]:
    """The paths of a column in a tag."""
    if text is None:
        return
    with suppress(DeltaVariantError):
        for parent, last in stats.decode_bounds(text).items():
            for step in last:
                path = parse_normalized(parent + step)
                if path[: len(names)] == names:
                    yield path[len(names) :]


def _marked(todo: Sequence[_Computation], plan: AnalysisPlan) -> tuple[str, dict[str, str]]:
    """The marker and the other tags of a file.

    Bounds of paths that Spark may misread go into a tag, so that the marker can say that all other paths with bounds are typed.
    The marker cannot say so if the tag has no room for them, or if other bounds do not belong to typed columns either.
    """
    named = [(one.column.names, one.stats) for one in todo]

    def tags_with(chosen: Callable[[_Computation], Iterable[ColumnPath]]) -> dict[str, str]:
        for one in todo:
            one.stats.put_into_tag(chosen(one))
        return variants.tags(named) if plan.tags or plan.tags_only else {}

    if plan.tags_only:
        return stats.BOUNDS_TAG_VALUE, tags_with(lambda one: one.stats.bounded)
    if all(one.is_typed for one in todo):
        tags = tags_with(lambda one: one.misread)
        there = {one.column.names: set(_tagged(tags.get(stats.NONNULL_TAG), one.column.names)) for one in todo}
        if all(there[one.column.names].issuperset(one.misread) for one in todo):
            return stats.TYPED_TAG_VALUE, tags
    return stats.BOUNDS_TAG_VALUE, tags_with(lambda _: ())


class _Reading:
    """Collects the bounds of one column from its file."""

    def __init__(
        self, one: _Computation, parquet: columns.Columns, group: ColumnPath, footer: Footer, inference: Inference
    ) -> None:
        self._one, self._parquet, self._group, self._footer, self._inference = one, parquet, group, footer, inference

    def run(self) -> None:
        one, kind = self._one, self._parquet.group(self._group)
        typed = [column for column in self._parquet.typed_columns(self._group) if _has_bounds(column.kind)]
        is_shredded = kind is not None and layouts.is_variant(kind) and kind.get_field_index("typed_value") >= 0
        paths = set(one.column.paths) - {column.keys for column in typed if is_shredded}
        if is_shredded:
            self._read_typed_columns(typed)
            one.is_typed = named_apart(shredding.schema_of(kind))
            one.misread = [keys for keys, values in one.stats.bounded.items() if self._is_misread(values)]
        if not is_shredded or paths:
            self._read_values(is_shredded=is_shredded, paths=paths)

    def _read_typed_columns(self, typed: Sequence[TypedColumn]) -> None:
        one = self._one
        numbers: set[int] = set()
        for column in typed:
            state = self._footer.of(column, one.null_rows, read=is_string(column.kind) and column.keys in one.read)
            if isinstance(state, UnreadLeaves):
                numbers |= state.numbers
            elif isinstance(state, PathStatistics):
                one.stats.state(column.keys, column.kind, state.extremes, (state.nulls, state.missing))
        if numbers:
            one.source = "columns"
            first = 0
            for batch in self._parquet.batches(numbers):
                in_rows(lambda rows: one.stats.add(nested.in_batch(rows, self._group)), batch, first)
                first += batch.num_rows

    def _read_values(self, *, is_shredded: bool, paths: Collection[ColumnPath]) -> None:
        """Adds bounds from whole Variants, for a column without typed columns and for paths that no typed column has."""
        one = self._one
        one.source, one.is_typed = "values", False
        variants, sample = self._parquet.variants(self._group), []
        given = None if is_shredded else one.column.schema
        if given is None and not is_shredded:
            sample = list(_first(variants))
            if sample:
                rows = pa.chunked_array(sample).slice(0, SAMPLE_ROWS)  # as many as `write` takes
                given = self._inference.schema(self._group, rows)
        both = given, self._schema_of(set(paths) - _leaves(given))
        schemas = [wanted for wanted in both if wanted is not None]
        for rows in itertools.chain(sample, variants) if schemas else ():
            for wanted in schemas:
                one.stats.add(shredding.shred(rows, wanted))

    def _schema_of(self, paths: Collection[ColumnPath]) -> pa.DataType | None:
        """A shredding schema of these paths, with the types that their values have in the file; None if there are none."""
        if not paths:
            return None
        sample = schema.Sample(depth=max(map(len, paths)))
        for rows in self._parquet.variants(self._group):
            sample.add(rows)
        return sample.schema_of(paths)

    def _is_misread(self, values: Extremes) -> bool:
        """Whether Spark may read a typed column differently from the Variant (`protocol/README.md`, T2 and F5).

        Filters on dictionaries tell 0.0 from -0.0, and so lose zeros in FLOAT and DOUBLE columns of other writers. Without the
        key of Spark's version, settings of the session decide on the calendar of dates and timestamps.
        """
        kind = values.kind
        if pa.types.is_floating(kind):
            return not self._footer.is_ours and bool(values.low <= 0 <= values.high)
        has_calendar = pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is not None)
        return bool(has_calendar) and not self._footer.has_sparks_key


def _first(variants: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """The first rows of a column, as many as `write` looks at to infer a shredding schema."""
    rows = size = 0
    while rows < SAMPLE_ROWS and size < SAMPLE_BYTES and (array := next(variants, None)) is not None:
        rows, size = rows + len(array), size + array.nbytes
        yield array


def _has_bounds(kind: pa.DataType) -> bool:
    return has_order(kind) or bool(pa.types.is_boolean(kind))


def _leaves(kind: pa.DataType | None, keys: ColumnPath = ()) -> set[ColumnPath]:
    """The paths of the typed columns of a shredding schema that are reached through objects only."""
    if kind is None:
        return set()
    if pa.types.is_struct(kind):
        return {path for field in kind for path in _leaves(field.type, (*keys, field.name))}
    return {keys}

"""The tasks of `analyze`: Add actions → their statistics and tags with exact bounds; data files → files of the index of values.

In: AnalyzedFiles in JSON, or data files. Out: an AnalysisReport for each file, in JSON, or an IndexReport for the task.
Invariant: a file that cannot be read does not stop the others. The report has the reason. Files of the index that are written
stay, even if the task fails later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from delta_variant.analysis.files import analyze_file
from delta_variant.analysis.plan import AnalysisPlan
from delta_variant.errors import DeltaVariantError
from delta_variant.membership.data_files import index_file
from delta_variant.membership.plan import DataFile, IndexPlan, Path
from delta_variant.membership.sidecars import Sidecars
from delta_variant.messages import AnalysisReport, AnalyzedFile, decoded, encoded
from delta_variant.parquet.opening import CountedFile, reading
from delta_variant.paths import ColumnPath
from delta_variant.schema.of_files import Inference
from delta_variant.stats import rewriting
from delta_variant.version import check_version

OWN_TAGS = "delta_variant."
"""How the names of this package's tags begin."""


def analyze_messages(plan: AnalysisPlan, _number: int, messages: Iterator[bytes]) -> Iterator[bytes]:
    """Runs one task.

    A report has the number of bytes that were `read`. If the file failed, `failed` is the reason. If the log lacks something,
    `stats` and `tags` are for the log, with the `source` of the bounds and the number of `rows`.
    """
    check_version(plan.version)
    system, inference = plan.location.open(), Inference()
    for message in messages:
        given = decoded(AnalyzedFile, message)
        try:
            with CountedFile(system.open_input_file(plan.location.file(given.path))) as source, reading(source):
                report = analyze_file(source, given, plan, inference) or AnalysisReport(given.file)
                report = replace(report, read=source.count)
        except (DeltaVariantError, FileNotFoundError) as error:
            report = AnalysisReport(given.file, failed=str(error))
        yield encoded(report).encode()


def remove_messages(columns: Sequence[ColumnPath], _number: int, messages: Iterator[bytes]) -> Iterator[bytes]:
    """Runs one task that removes bounds and tags. columns: the VARIANT columns, by their names in statistics.

    Messages and reports are those of `analyze_messages`.
    """
    places = [(side, *names) for side in ("minValues", "maxValues") for names in columns]
    for message in messages:
        given = decoded(AnalyzedFile, message)
        tags = {name: text for name, text in given.tags.items() if not name.startswith(OWN_TAGS)}
        report = AnalysisReport(given.file)
        if tags != given.tags or any(rewriting.member(given.stats, place) is not None for place in places):
            report = replace(report, stats=rewriting.replaced(given.stats, dict.fromkeys(places)), tags=tags, source="log")
        yield encoded(report).encode()


# ---- the index of values ---------------------------------------------------------------------------------------------


@dataclass
class IndexReport:
    """What a task did. counts: entries by path and kind. written: bytes of the index. read: bytes of data files."""

    counts: dict[tuple[Path, str], int] = field(default_factory=lambda: defaultdict(int))
    written: int = 0
    read: int = 0
    failed: dict[str, str] = field(default_factory=dict)


def index_files(plan: IndexPlan, files: Iterable[tuple[DataFile, frozenset[Path]]]) -> Iterator[IndexReport]:
    """Runs one task. files: with the paths of Variants that the index lacks for them."""
    check_version(plan.version)
    system, report = plan.location.open(), IndexReport()
    sidecars = Sidecars(plan.location, system, plan.table)
    for file, lacking in files:
        try:
            with CountedFile(system.open_input_file(plan.location.file(file.path))) as source, reading(source):
                found = index_file(source, file, plan, lacking)
                report.read += source.count
        except (DeltaVariantError, FileNotFoundError) as error:
            report.failed[file.path] = str(error)
            continue
        for path, entry in found.items():
            report.counts[path, entry.kind] += 1
        sidecars.add(found)
    sidecars.flush()
    report.written, report.counts = sidecars.written, dict(report.counts)
    yield report

"""A task that builds filters: data files → files of the index, and a report.

Invariant: a file that cannot be read does not stop the others. Files that are written stay, even if the task fails later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from delta_variant.errors import DeltaVariantError
from delta_variant.membership.data_files import index_file
from delta_variant.membership.plan import DataFile, IndexPlan, Path
from delta_variant.membership.sidecars import Sidecars
from delta_variant.parquet.opening import CountedFile, reading
from delta_variant.version import check_version


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

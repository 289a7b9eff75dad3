"""A task of an analysis: Add actions → their statistics and tags with exact bounds.

In: AnalyzedFiles in JSON. Out: an AnalysisReport for each, in JSON. Invariant: a file that cannot be read does not stop the
others. Its report has the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from delta_variant.analysis.files import File, analyze_file
from delta_variant.analysis.plan import AnalysisPlan, check_version
from delta_variant.errors import DeltaVariantError
from delta_variant.messages import AnalysisReport, AnalyzedFile, decoded, encoded
from delta_variant.parquet.opening import CountedFile, reading
from delta_variant.paths import ColumnPath
from delta_variant.writer.shredding_schemas import Inference

OWN_TAGS = "delta_variant."
"""How the names of this package's tags begin."""


def analyze_messages(plan: AnalysisPlan, _number: int, messages: Iterator[bytes]) -> Iterator[bytes]:
    """Runs one task.

    A report has the number of bytes that were `read`, and either `failed`, a reason, or what the log is to have, `stats` and
    `tags`, with the `source` of the bounds and the number of `rows`; neither if the log has it already.
    """
    check_version(plan.version)
    system, inference = plan.location.open(), Inference()
    for message in messages:
        given = decoded(AnalyzedFile, message)
        report = AnalysisReport(given.file)
        try:
            with CountedFile(system.open_input_file(plan.location.file(given.path))) as source, reading(source):
                found = analyze_file(source, File(given.stats, given.tags), plan, inference)
                report = replace(report, read=source.count)
            if found is not None:
                report = replace(report, stats=found.stats, tags=found.tags, source=found.source, rows=found.rows)
        except (DeltaVariantError, FileNotFoundError) as error:
            report = replace(report, failed=str(error))
        yield encoded(report).encode()


def remove_messages(columns: Sequence[ColumnPath], _number: int, messages: Iterator[bytes]) -> Iterator[bytes]:
    """Runs one task that removes bounds and tags. columns: the VARIANT columns, by their names in statistics.

    Messages and reports are those of `analyze_messages`.
    """
    for message in messages:
        given = decoded(AnalyzedFile, message)
        statistics, tags = json.loads(given.stats or "{}"), given.tags
        removed = [_removed(statistics.get(side), names) for side in ("minValues", "maxValues") for names in columns]
        kept = {name: text for name, text in tags.items() if not name.startswith(OWN_TAGS)}
        report = AnalysisReport(given.file)
        if any(removed) or kept != tags:
            report = replace(report, stats=json.dumps(statistics, separators=(",", ":")), tags=kept, source="log")
        yield encoded(report).encode()


def _removed(values: Any, names: ColumnPath) -> bool:
    """Removes a column from the values of a side. Returns whether it was there."""
    for name in names[:-1]:
        values = values.get(name) if isinstance(values, dict) else None
    return isinstance(values, dict) and values.pop(names[-1], None) is not None

"""`VariantTable.analyze`: exact bounds for files that lack them, whoever wrote them, without rewriting data.

    Add actions ─▶ footers, typed columns or values (`files`, in tasks) ─▶ the same actions with other statistics and tags

`driver` finds the files, runs the job and commits, batch by batch; `java/Analysis.java` keeps the Add actions.

Invariants: data files are never changed. A table changes by commits with `dataChange` = false. Statistics of other columns are
kept byte for byte.
"""

from delta_variant.analysis.driver import Analyzed, analyze

__all__ = ["Analyzed", "analyze"]

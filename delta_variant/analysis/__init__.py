"""`VariantTable.analyze` and `inspect`: exact bounds for existing files that lack them, and the contents of existing files.

    Add actions ─▶ footers, typed columns or values (`files`, in tasks) ─▶ the same actions with other statistics and tags

`driver` finds the files, runs the job and commits, batch by batch; `scala/Analysis.scala` keeps the Add actions. `inspection`
reads footers.

Invariants: data files are never changed. A table changes by commits with `dataChange` = false. Statistics of other columns are
kept byte for byte.
"""

from delta_variant.analysis.driver import Analyzed, analyze, remove_bounds
from delta_variant.analysis.index import Indexed
from delta_variant.analysis.inspection import inspected

__all__ = ["Analyzed", "Indexed", "analyze", "inspected", "remove_bounds"]

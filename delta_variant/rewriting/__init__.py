"""`VariantTable.optimize`, `shred`, `unshred` and `drop_feature`: files are written anew, with the same rows.

    statistics in the log ─▶ sets of files (`arrangement`) ─▶ rows in order (`source`) ─▶ `writer` ─▶ one commit for each job

`driver` tells an operation from its beginning to its end. `feature` takes the table feature out of the protocol. `advice` says
which keys are worth it.

Invariants: rows never change. Commits have `dataChange` = false. A job that is killed, or that conflicts, leaves the table as
it was before.
"""

from delta_variant.rewriting.advice import Advice, advise
from delta_variant.rewriting.driver import Rewritten, cluster_by, optimize, reorganize
from delta_variant.rewriting.feature import drop_feature

__all__ = ["Advice", "Rewritten", "advise", "cluster_by", "drop_feature", "optimize", "reorganize"]

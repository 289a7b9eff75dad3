"""`VariantTable.optimize`, `shred`, `unshred` and `drop_feature`: files are rewritten, with the same rows.

    statistics in the log ─▶ sets of files (`arrangement`) ─▶ rows in order (`source`, in tasks `sorting`) ─▶ `writer`
    ─▶ one commit for each job

`driver` tells an operation from its beginning to its end. `feature` takes the table feature out of the protocol. `advice` says
which keys are worth it.

This module imports none of the others, because tasks import `sorting` alone.

Invariants: rows never change. Commits have `dataChange` = false. A job that is killed, or that conflicts, leaves the table as
it was before.
"""

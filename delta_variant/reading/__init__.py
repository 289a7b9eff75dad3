"""Which VARIANT paths of a scan are read from their typed columns, and how. Pure: no Spark, no JVM.

requests     the uses of a scan's VARIANTs by path ─▶ the bounds whose types prove the typed columns
                                                          │ what the log says of each file
             how the files are planned ◀─ casts: from the column to the type that a use asks for
"""

from delta_variant.reading.casts import cast
from delta_variant.reading.requests import MAX_GROUPS, groups, outcome, proofs, shown

__all__ = ["MAX_GROUPS", "cast", "groups", "outcome", "proofs", "shown"]

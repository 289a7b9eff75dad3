"""What a query asks, and what the log and the files say about it: one form of predicates, one table of casts. Pure: no Spark.

text of SQL ─ lexing, sql ─▶ expressions ◀─ arrow_filters ─ filters of pyarrow
                              │     └─▶ values of rows, by `scanning`
   Catalyst's filters ──────▶ │ filters
                              ▼
                 predicates: comparisons of paths with constants
                              │ bounds; casts: which bounds answer which question
                              ▼
        messages.FilePredicate: FALSE if no row of a file can match
          │                                │
requests: the reply to the JVM;       pruning: evaluated on evidence, which
also for MIN and MAX                  the log or a footer gives
findings: what each comparison
proves, for `explain`

typed      the uses of a scan's VARIANTs by path ─▶ the bounds whose types prove the typed columns
                                                        │ what the log says of each file
           how the files are planned ◀─ casts: from the column to the type that a use asks for
fields     the columns of a table without Spark, and their types
"""

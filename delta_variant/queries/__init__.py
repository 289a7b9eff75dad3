"""What the log and the files say about a query. Pure: no Spark, no JVM.

requests     filters of a scan ─▶ predicates: comparisons of Variant paths
                                      │ bounds; casts: which bounds answer which question
             reply for the JVM ◀─ messages.FilePredicate: FALSE if no row of the file can match
                                  findings: what each comparison proves, for `explain`
             MIN and MAX of paths ─▶ the bounds that answer them
typed        the uses of a scan's VARIANTs by path ─▶ the bounds whose types prove the typed columns
                                                          │ what the log says of each file
             how the files are planned ◀─ casts: from the column to the type that a use asks for

`scanning` asks the same without Spark:

sql, arrow_filters   the text of SQL, filters of pyarrow ─▶ expressions on the fields of a table
pruning              expressions ─▶ predicates ─▶ a file predicate, evaluated on evidence: what the log or a footer says
expressions          evaluation on the rows that are left, with the casts of Spark on Arrow arrays (casts)
"""

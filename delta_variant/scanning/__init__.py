"""`scan`: the rows of a Delta table as Arrow record batches, without Spark.

path ─▶ log: the files of a version ─▶ query: columns and predicate by `queries`, files that can match
─▶ files: row groups and rows of one file, file_schema: its columns and paths ─▶ stream: several files at a time, in order

This module imports none of the others: a task that sorts rows (`rewriting.sorting`) needs no SQL.
"""

"""Parquet files of any writer → record batches as Spark sends them: what the tasks of `convert` do. No Spark, no JVM.

    piece of a file ─▶ reader: rows of its row groups, Variants rebuilt ─▶ parquet.fitting: the columns and types of all files

`spark_schema` says which columns of a file are VARIANT and which types Spark has for the others, and merges those of many
files.
"""

"""Files of JSON documents → Variants: what the tasks of `ingest` do. No Spark, no JVM.

    piece of a file ─▶ texts: blocks of bytes, and where each document is ─▶ documents: Variants, and what is malformed

`pieces` is the data that the driver sends.
"""

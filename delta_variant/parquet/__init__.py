"""One Parquet file: Arrow record batches in, a file whose VARIANT groups carry the logical type out; and back.

    table ─▶ shred ─▶ FileWriter ─▶ encodings (per column, from a sample) ─▶ pyarrow ─▶ footer (VARIANT inserted) ─▶ file
    file ─▶ footer (which groups are VARIANT) ─▶ pyarrow ─▶ unshred ─▶ table

Source: parquet-format, `LogicalTypes.md` (VARIANT) and `VariantShredding.md`.

Invariants: memory holds one row group and the footer, never the file. The footer has no min and max for FLOAT and DOUBLE
columns: pyarrow leaves NaN out of them, and Spark then drops rows. What was not closed has no footer.
"""

from delta_variant.parquet.files import ROW_GROUP_BYTES, ROW_GROUP_ROWS, FileWriter
from delta_variant.parquet.tables import read_table, write_table

__all__ = ["ROW_GROUP_BYTES", "ROW_GROUP_ROWS", "FileWriter", "read_table", "write_table"]

"""One Parquet file: Arrow record batches in, a file whose VARIANT groups carry the logical type out; and back.

    table ─▶ shred ─▶ FileWriter ─▶ encodings (per column, from a sample) ─▶ pyarrow ─▶ footer (VARIANT inserted) ─▶ file
    file ─▶ footer (which groups are VARIANT) ─▶ pyarrow ─▶ unshred ─▶ table

Source: parquet-format, `LogicalTypes.md` (VARIANT) and `VariantShredding.md`.

Invariants: memory holds two row groups, the page indexes and the footer, never the file. No reader loses a row because of a
minimum or a maximum: a FLOAT or DOUBLE column has neither in a row group where it has a NaN. A file that was not closed has
no footer.
"""

from delta_variant.parquet.files import ROW_GROUP_BYTES, ROW_GROUP_ROWS, FileWriter
from delta_variant.parquet.inspection import inspect
from delta_variant.parquet.tables import read_table, write_table

__all__ = [
    "ROW_GROUP_BYTES",
    "ROW_GROUP_ROWS",
    "FileWriter",
    "inspect",
    "read_table",
    "write_table",
]

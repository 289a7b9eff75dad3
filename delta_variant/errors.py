"""Every error this package raises on purpose: one family, so that one `except DeltaVariantError` is enough.

A message names the thing (table, column, path, file, byte) and the way out.
"""


class DeltaVariantError(Exception):
    """Base of the family."""


class MalformedVariantError(DeltaVariantError, ValueError):
    """Variant bytes that the binary encoding does not allow."""


class InvalidLayoutError(DeltaVariantError, ValueError):
    """A Parquet or Arrow layout of a VARIANT column that the shredding specification does not allow."""


class InvalidSchemaError(DeltaVariantError, ValueError):
    """A shredding schema, or a DataFrame's schema, that does not fit what it is used for."""


class InvalidPathError(DeltaVariantError, ValueError):
    """Text that is not a path into a VARIANT column."""


class TableError(DeltaVariantError):
    """A table that is missing, is not Delta, or cannot take the operation."""


class ConflictError(TableError):
    """What another writer committed in between does not go with a commit; the table is as that writer left it: try again."""


class UnsupportedFeatureError(DeltaVariantError, NotImplementedError):
    """A feature of the table, the session or the data that this package does not handle (yet)."""


class SessionError(DeltaVariantError, RuntimeError):
    """A Spark session, or a machine, that cannot run what was asked."""


class DeltaVariantWarning(UserWarning):
    """Something worth knowing that does not stop the work."""

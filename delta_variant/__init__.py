"""delta-variant: shredded VARIANT columns for PySpark and Delta Lake."""

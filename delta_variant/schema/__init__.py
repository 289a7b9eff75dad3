"""Shredding schemas: the shape that a VARIANT column is shredded to.

A shredding schema is an Arrow type: a struct is an object, a list is an array, a primitive is a typed leaf, and `pa.null()` is
a field that has a `value` column of its own but no type. In: Spark DDL text (`parse`; `ddl` writes it) or samples of the column
(`infer`, `Sample`). Out: that type. Source: VariantShredding, "Shredded Value Types". Invariant: every type returned here
passes `check`.
"""

from delta_variant.schema.ddl import ddl, parse
from delta_variant.schema.inference import Sample, infer
from delta_variant.schema.rules import check, is_list

__all__ = ["Sample", "check", "ddl", "infer", "is_list", "parse"]

"""Whole columns: Variants as (metadata, value) ↔ Variants shredded to a schema, Arrow in and Arrow out.

    shred       struct<metadata, value> + schema ─▶ struct<metadata, value, typed_value>
    shred_json  JSON texts + schema ─▶ struct<metadata, value, typed_value>
    unshred     struct<metadata, value, typed_value> ─▶ struct<metadata, value>

Source: Parquet VariantShredding. At every node of the schema,

    value      typed_value   the Variant at this node is
    null       null          missing (a field), or SQL NULL (the column itself)
    set        null          of any type, JSON null included, but not the schema's
    null       set           of the schema's type
    set        set           an object: named fields in typed_value, the others in value

A column is processed node by node by the loops of `kernels`; the modules here prepare their buffers: `plan` (what the kernels
need to know of a schema), `shredder`, `json_texts`, `unshredder`. Invariant: `unshred(shred(x, s))` equals x: exact numerics
(integers and decimals) by numeric value, everything else by type and value.
"""

from delta_variant.shredding.json_texts import shred_json
from delta_variant.shredding.plan import UNSHREDDED, storage_type
from delta_variant.shredding.shredder import plain, shred, validate
from delta_variant.shredding.unshredder import schema_of, unshred

__all__ = ["UNSHREDDED", "plain", "schema_of", "shred", "shred_json", "storage_type", "unshred", "validate"]

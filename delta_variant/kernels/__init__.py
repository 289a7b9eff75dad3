"""Compiled loops over Arrow buffers: the only code that touches every Variant of a column.

In: NumPy views of Arrow buffers (`data`: the bytes of all values of a chunk) and, per slot of one node of the shredding
schema, where its Variant starts (`at`, -1: missing) and where the row's bytes end (`limit`). Out: NumPy arrays that become
Arrow buffers. A node is a field or a list element of the schema; its slots are the rows, or the elements of all lists above.

The schema is worked off node by node, not row by row: every kernel is one tight loop over the slots of one node, without
dispatch on types. The strategy for a whole column lives in `shredding`.

    cache     where compiled kernels are kept between processes
    memory    loads, copies, and the headers of values
    metadata  dictionaries
    shred     Variants → slots of the schema
    unshred   slots of the schema → Variants
    validate  whether Variants are well-formed through and through
    rekey     Variants → the same with other dictionaries
    json      Variants → JSON text; notation: how its scalars look
    texts     the smallest and the largest string of a column
    sample    what a column holds, path by path, for `schema.infer`
    thrift    where the values in a Parquet footer end

Source: Parquet VariantEncoding and VariantShredding. Invariants: nothing outside [at, limit) is read,
and what a kernel cannot place it counts in `rest` (bytes that go to the node's `value`). Malformed bytes end a kernel early:
it returns -1 and `fault` = (code, slot, byte), which `memory.FAULTS` explains.
"""

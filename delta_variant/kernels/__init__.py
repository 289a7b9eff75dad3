"""Compiled loops over Arrow buffers: the only code that touches every Variant of a column.

A node is the column, a field or a list element of the shredding schema. Its slots are the rows, or the elements of all lists
around it. In: NumPy views of Arrow buffers (`data`: the bytes of all values of a chunk) and, for each slot of a node, the
position where its Variant starts (`at`, -1: missing) and the position where the bytes of its row end (`limit`). Out: NumPy
arrays that become Arrow buffers.

A column is processed node by node, not row by row: every loop is a tight one over the slots of one node, without dispatch on
types. The strategy for a whole column is in `shredding`.

    compiler  compiles kernels and stores them between processes: all that depends on Numba
    memory    numbers, copies, the headers of values, and the codes of faults
    metadata  dictionaries
    levels    Variants → slots of the schema: objects and lists in shred, leaves in take
    structs   Arrow arrays as structs, for pyarrow to import
    unshred   slots of a node → Variants; rebuild: all nodes of a column
    validate  checks Variants down to the last leaf
    rekey     Variants → the same Variants with other dictionaries
    json      Variants → JSON text; notation: the format of scalars in it
    scan      32 bytes of text at a time; lines, elements, adjacent: where documents are in a file
    parse     JSON text → Variants, with keys, containers, numbers and strings
    texts     the smallest and the largest string of a column
    times     the first and the last date or timestamp of a column of texts
    sample    counts the paths and the types of a column, for `schema.infer`
    order     the order of the keys of objects
    ribbon    hashes of values, and filters over them
    thrift    finds where values in a Parquet footer end
    footers   checks a Parquet footer before pyarrow gets it

These arguments mean the same in every kernel. dictionary[slot], or meta[slot], is the number of the dictionary that a Variant
uses. The keys of all dictionaries are in flat arrays, those of dictionary d from key_start[d] to key_start[d + 1]. `valid`,
`live` and `typed` are flags, one for each slot; as input, an empty array says that all are set. rest[slot] is the size in bytes
of the slot's residual, which goes to `value`; 0: none.

Source: Parquet VariantEncoding and VariantShredding. Invariants: no byte outside [at, limit) has an effect, though loads of 8
and copies of 32 bytes may reach beyond, at most into the padding of the buffer; what does not fit the type of a node is counted
in `rest`. Malformed bytes end a kernel early: it returns -1 and sets `fault` to (code, slot, byte). `memory.FAULTS` has a text
for each code.
"""

"""shred_json: JSON texts → the columns of a shredding schema. Only the Variants of one chunk are in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from delta_variant import schema as schemas
from delta_variant.binary.parse import JsonFaults, Parser, texts_of
from delta_variant.shredding.plan import plan
from delta_variant.shredding.shredder import shred

CHUNK_BYTES = 8 << 20
"""Texts are parsed in chunks of at most this size."""

CHUNK_ROWS = 1 << 20


def shred_json(
    array: pa.Array | pa.ChunkedArray,
    as_type: pa.DataType | str,
    *,
    errors: str = "raise",
    allow_duplicate_keys: bool = False,
    validate_unicode: bool = True,
    for_spark: bool = False,
) -> pa.StructArray:
    """Parses JSON texts and shreds them to a shredding schema: an Arrow type or DDL text.

    array: strings or binaries in any of Arrow's forms. Returns what `shred(parse_json(array))` returns, with the memory of one
    chunk of Variants. errors, allow_duplicate_keys, validate_unicode: as for `binary.parse_json`; for_spark: as for `shred`.
    Raises what these two raise.

    >>> import pyarrow as pa, delta_variant as dv
    >>> shredded = dv.shredding.shred_json(pa.array(['{"id": 1}', '{"id": "one"}']), "id bigint")
    >>> shredded.field("typed_value").field("id").field("typed_value").to_pylist()
    [1, None]
    """
    if errors not in ("raise", "null"):
        raise ValueError(f'errors is "raise" or "null", not {errors!r}')
    schema = schemas.parse(as_type) if isinstance(as_type, str) else as_type
    storage = plan(schema).storage
    parser = Parser(allow_duplicate_keys=allow_duplicate_keys, validate_unicode=validate_unicode, distinct=True)
    chunks, row = [], 0
    for texts in array.chunks if isinstance(array, pa.ChunkedArray) else [array]:
        data, at, limit = texts_of(texts)
        start = 0
        while start < len(at):
            begin = int(limit[start - 1]) if start else int(limit[0])
            stop = int(np.searchsorted(limit, begin + CHUNK_BYTES, "right"))
            stop = min(max(stop, start + 1), start + CHUNK_ROWS, len(at))
            parser.add(data, at[start:stop], limit[start:stop])
            variants, faults = parser.finish()
            if errors == "raise" and len(faults.row):
                raise JsonFaults(faults.row[:1] + row, faults.code[:1], faults.byte[:1]).error()
            chunks.append(shred(variants, schema, for_spark=for_spark))
            row += stop - start
            start = stop
    if not chunks:
        return pa.nulls(0, storage)
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)

"""VARIANT columns in any layout that a specification has described → Variants as (metadata, value).

    final    metadata, value, typed_value                   VariantShredding
    draft    metadata, variant_value, typed_value           VariantShredding before its adoption: a field of an object is a
             (or object, array in its place)                group (option 1) or typed directly (option 2)
    first    untyped_value, object, array, typed_value      Spark's first shredding layout: no metadata; the bytes of an
                                                            untyped_value are metadata ‖ value

`recognition` tells the layout of a column from its type, `groups` converts columns of the older two layouts to the final
one, `first` rebuilds the metadata of rows in Spark's layout, and `shredding.unshred` does the rest. Where the older
specifications leave a choice:

* If a group has both bytes and a typed value, and they are not the two parts of an object, this is an error in both layouts
  (the draft would allow readers to return the bytes).
* If a field is in the bytes of its object while its own columns are null, it has the value in the bytes. If its own columns
  are set too, this is an error in the draft; in Spark's layout its own columns win, as in Spark's ConstructObject.
* Elements that are missing, and rows where all columns are null, are Variant nulls. A null group is SQL NULL.

Invariant: the result is that of the final layout. For Spark's layout, a row's dictionary has exactly the names that its Variant
uses, sorted, and all containers are in their smallest form.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from delta_variant import shredding
from delta_variant.buffers import as_binary, size_of
from delta_variant.buffers import check as check_buffers
from delta_variant.errors import InvalidLayoutError
from delta_variant.layouts import first, groups
from delta_variant.layouts.recognition import FIRST, Words, check, is_variant, layout_of
from delta_variant.locating import in_rows
from delta_variant.shredding.names import MATRIX, columns_of, names_of, used_names

__all__ = ["is_variant", "unshred"]

CHUNK_ROWS = 1 << 14

CHUNK_BYTES = 16 << 20
"""Rows are converted in chunks of at most about this size."""


def unshred(array: pa.Array) -> pa.StructArray:
    """Rebuilds the Variants of a column in any layout.

    array: a struct, or an extension array of one, null where the Variant is SQL NULL. Returns struct<metadata: binary not null,
    value: binary not null>. Raises InvalidLayoutError, with the path, if the type has no known layout, if it has columns that
    its layout does not know (columns whose names begin with an underscore are ignored), or if the data are invalid; raises
    MalformedVariantError if Variant bytes are malformed.

    >>> import pyarrow as pa, delta_variant as dv
    >>> metadata, value = dv.binary.encode({"id": 1})
    >>> draft = pa.array([{"metadata": metadata, "variant_value": value}])
    >>> [dv.binary.decode(**row) for row in dv.layouts.unshred(draft).to_pylist()]
    [{'id': 1}]
    """
    check_buffers(array, "unshred")
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    words = layout_of(storage.type)
    if words is None:
        return shredding.unshred(array)
    check(storage.type, words)
    fitting = len(storage) * CHUNK_BYTES // max(1, size_of(storage))
    rows = max(1, min(CHUNK_ROWS, fitting, MATRIX // max(1, len(names_of(storage.type)))))
    convert = partial(_chunk, words=words)
    chunks = [in_rows(convert, storage[start : start + rows], start) for start in range(0, len(storage), rows)]
    if any(sum(chunk.field(i).nbytes for chunk in chunks) > np.iinfo(np.int32).max for i in range(2)):
        raise InvalidLayoutError("the Variants of one batch take more than 2 GiB: read smaller batches")
    if not chunks:
        return pa.array([], shredding.UNSHREDDED)
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def _chunk(array: pa.StructArray, words: Words) -> pa.StructArray:
    """The Variants of some rows in an older layout."""
    columns, valid = columns_of(array), np.asarray(array.is_valid())
    root = groups.read(columns, np.arange(len(array)), "$", words)
    metadata = first.give_metadata(root, *used_names(array)) if words is FIRST else as_binary(columns["metadata"])
    found = root.columns(groups.Rows(metadata, valid, words))
    final = pa.StructArray.from_arrays([metadata, *found.values()], ["metadata", *found], mask=pa.array(~valid))
    return shredding.unshred(final)

"""Variants outside Arrow: Python value ↔ (metadata, value) bytes, and bytes → JSON text.

In: the two byte strings of the Variant binary encoding (version 1). Out: natural Python values, or the reverse.

| Variant                  | decode gives                          | encode takes                                             |
| ------------------------ | ------------------------------------- | -------------------------------------------------------- |
| null, boolean            | None, bool                            | None, NaT; bool, numpy.bool_                             |
| int8 … int64             | int                                   | int, numpy integers: the narrowest that holds them       |
| decimal4, 8, 16          | Decimal, scale kept                   | Decimal: the narrowest that holds it; larger ints        |
| double, float            | float, numpy.float32                  | float; numpy.float32, numpy.float16                      |
| string, binary           | str, bytes                            | str; bytes, bytearray, memoryview                        |
| date                     | datetime.date                         | datetime.date; datetime64 in days or longer units        |
| timestamp                | datetime with UTC                     | datetime, pandas.Timestamp with any zone                 |
| timestamp_ntz            | datetime without a zone               | datetime, pandas.Timestamp without; datetime64           |
| timestamp_nanos, …_ntz   | pandas.Timestamp                      | pandas.Timestamp not of whole microseconds; datetime64   |
|                          |                                       | in nanoseconds or shorter units                          |
| time, uuid               | datetime.time, uuid.UUID              | datetime.time without a zone, uuid.UUID                  |
| array, object            | list, dict                            | list, tuple; dict with str keys                          |

`encode` also takes Arrow scalars. They become the primitive that a typed column of their type holds: `pa.scalar(5, pa.int32())`
is an int32, and the precision of a decimal128 decides between decimal4, decimal8 and decimal16, as it does in Parquet.

An instance of a subclass is encoded like its base class: an IntEnum is an int. Outside Python's years 1 to 9999, dates decode
to numpy.datetime64[D] and timestamps to pandas.Timestamp in microseconds. The smallest int64, which both take for NaT, decodes
to numpy.datetime64[4us] or [4ns], without its zone.

`decode` accepts every width that the specification allows, dictionaries in any order and with repeated or unused names, values
in any order, and extra bytes after the Variant. Malformed bytes raise MalformedVariantError and are never read past their end.
Invariants: `decode(*encode(x)) == x`; `decode` and `to_json` refuse the same bytes. No function recurses.
"""

from delta_variant.binary.decoder import VERSION, decode, decode_field, decode_metadata, find
from delta_variant.binary.encoder import encode, encode_metadata
from delta_variant.binary.json import json_column, to_json
from delta_variant.binary.parse import parse_json

__all__ = [
    "VERSION",
    "decode",
    "decode_field",
    "decode_metadata",
    "encode",
    "encode_metadata",
    "find",
    "json_column",
    "parse_json",
    "to_json",
]

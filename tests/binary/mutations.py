"""Mutated Variants. FUZZ_ROUNDS says how many, FUZZ_SEED which."""

from __future__ import annotations

import json
import os
import random
from decimal import Decimal

import pyarrow as pa

from delta_variant import binary, shredding
from tests.support import length

ROUNDS = length("FUZZ_ROUNDS", 600, 20_000)
SEED = int(os.environ.get("FUZZ_SEED", str(random.randrange(2**32))))

DOCUMENTS = [
    {"a": 1, "b": {"c": "x" * 70, "d": [1, 2.5, None, {"e": True}]}, "f": Decimal("1.50")},
    {f"k{i}": i for i in range(300)},
    [[[[["deep"]]]], {}, [], "é"],
    json.loads("[" * 200 + '{"a":' * 200 + "1" + "}" * 200 + "]" * 200),
    {"a": b"\x00\xff", "b": {"c": "y", "z": 2**70}},
    list(range(300)),
    "short",
    None,
]


def mutated(rng):
    """The bytes of a document after flips, splices, truncations and sizes that overflow."""
    parts = [bytearray(part) for part in binary.encode(rng.choice(DOCUMENTS))]
    for _ in range(rng.choice([1, 1, 2, 4, 8])):
        part = parts[rng.random() < 0.7]
        if not part:
            continue
        at = rng.randrange(min(len(part), rng.choice([4, 16, len(part)])))
        action = rng.randrange(5)
        if action == 0:
            part[at] ^= 1 << rng.randrange(8)
        elif action == 1:
            part[at] = rng.choice([0, 1, 2, 3, 0x7F, 0x80, 0xFE, 0xFF])
        elif action == 2:
            del part[at:]
        elif action == 3:
            part[at : at + 4] = rng.choice([b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\0\0\0\0"])
        else:
            start = rng.randrange(len(part))
            part[at:at] = part[start : start + rng.randrange(1, 9)]
    return bytes(parts[0]), bytes(parts[1])


def surrounded(metadata, value, around):
    """A column of this one Variant, in buffers whose other bytes are all `around`."""
    rows = [around * 64, value, around * 64]
    metadata_rows = [around * 64, metadata, around * 64]
    children = [pa.array(metadata_rows, pa.binary()), pa.array(rows, pa.binary())]
    return pa.StructArray.from_arrays(children, fields=list(shredding.UNSHREDDED)).slice(1, 1)

"""Mutated Variants: a value or the one error, whatever lies around them.

FUZZ_ROUNDS and FUZZ_SEED make a longer run, or the same one again: FUZZ_ROUNDS=1000000 python -m pytest tests/test_fuzz.py
"""

import os
import random
from decimal import Decimal

import pyarrow as pa

from delta_variant import binary, schema, shredding
from delta_variant.errors import DeltaVariantError, MalformedVariantError

ROUNDS = int(os.environ.get("FUZZ_ROUNDS", "3000"))
SEED = int(os.environ.get("FUZZ_SEED", str(random.randrange(2**32))))

DOCUMENTS = [
    {"a": 1, "b": {"c": "x" * 70, "d": [1, 2.5, None, {"e": True}]}, "f": Decimal("1.50")},
    {f"k{i}": i for i in range(300)},
    [[[[["deep"]]]], {}, [], "é"],
    {"a": b"\x00\xff", "b": {"c": "y", "z": 2**70}},
    list(range(300)),
    "short",
    None,
]
SCHEMAS = [
    schema.parse(ddl)
    for ddl in (
        "a bigint, b struct<c: string, d: array<double>>, f decimal(9,2)",
        "array<array<array<string>>>",
        "k7 int, k299 decimal(38,3), a binary",
        "b struct<d: array<struct<e: boolean>>>",
        "string",
        "a variant, zz string",
    )
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
    """A column of that one Variant, between rows whose bytes are nothing but `around`."""
    rows = [around * 64, value, around * 64]
    metadata_rows = [around * 64, metadata, around * 64]
    children = [pa.array(metadata_rows, pa.binary()), pa.array(rows, pa.binary())]
    return pa.StructArray.from_arrays(children, fields=list(shredding.UNSHREDDED)).slice(1, 1)


def outcome(action, *arguments):
    """What an action gives, or the text of the error it raises."""
    try:
        return action(*arguments)
    except DeltaVariantError as error:
        assert isinstance(error, MalformedVariantError), error
        return str(error)


def rows(result):
    """An array in a form that compares to the last leaf; a text as it is."""
    return result if isinstance(result, str) else repr(result.to_pylist())


def test_mutated_variants(record_property):
    """Each gives a value or the error; the bytes around it make no difference; what shreds also unshreds."""
    record_property("seed", SEED)
    rng = random.Random(SEED)
    good = 0
    for round_ in range(ROUNDS):
        metadata, value = mutated(rng)
        as_type = rng.choice(SCHEMAS)
        one, other = (surrounded(metadata, value, around) for around in (b"\x00", b"\xff"))
        context = (f"FUZZ_SEED={SEED}, round {round_}", metadata.hex(), value.hex(), str(as_type))
        shredded = outcome(shredding.shred, one, as_type)
        assert rows(shredded) == rows(outcome(shredding.shred, other, as_type)), context
        assert outcome(shredding.validate, one) == outcome(shredding.validate, other), context
        assert str(outcome(schema.infer, one)) == str(outcome(schema.infer, other)), context
        outcome(binary.decode, metadata, value)
        if not isinstance(shredded, str):
            shredded.validate(full=True)
            shredding.unshred(shredded)
            good += 1
    assert 0 < good < ROUNDS

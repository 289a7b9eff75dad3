"""Mutated Variants give a value or an error of this package, whatever bytes are around them, in bounded memory.

FUZZ_ROUNDS sets the length of a run, FUZZ_SEED repeats one: FUZZ_ROUNDS=1000000 python -m pytest -s tests/binary/test_fuzz.py
"""

import json
import os
import random
import resource
from decimal import Decimal

import pyarrow as pa

from delta_variant import binary, layouts, schema, shredding
from delta_variant.errors import DeltaVariantError
from tests.support import length

ROUNDS = length("FUZZ_ROUNDS", 1500, 20_000)
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
    """A column of this one Variant, in buffers whose other bytes are all `around`."""
    rows = [around * 64, value, around * 64]
    metadata_rows = [around * 64, metadata, around * 64]
    children = [pa.array(metadata_rows, pa.binary()), pa.array(rows, pa.binary())]
    return pa.StructArray.from_arrays(children, fields=list(shredding.UNSHREDDED)).slice(1, 1)


def outcome(action, *arguments):
    """The result of an action as text, which has every leaf, or the message of its error."""
    try:
        result = action(*arguments)
    except DeltaVariantError as error:
        return str(error)
    return repr(result.to_pylist()) if isinstance(result, pa.Array) else str(result)


def corrupted(rng, array):
    """The shredded column, with some of its `value` bytes replaced by those of other Variants, mutated or not."""
    if pa.types.is_struct(array.type):
        children = [corrupted(rng, array.field(i)) for i in range(array.type.num_fields)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(array.type), mask=mask)
    if pa.types.is_list(array.type):
        values = corrupted(rng, array.values)
        return pa.Array.from_buffers(array.type, len(array), array.buffers()[:2], offset=array.offset, children=[values])
    if pa.types.is_binary(array.type) and rng.random() < 0.3:
        return pa.array([rng.choice([None, mutated(rng)[1], row]) for row in array.to_pylist()], pa.binary())
    return array


def check_readers(metadata, value, rng, as_type):
    """Each reader gives the same for a mutated Variant, whatever bytes are around it. Returns whether it is still valid."""
    one, other = (surrounded(metadata, value, around) for around in (b"\x00", b"\xff"))
    for action, arguments in (
        (shredding.shred, (as_type,)),
        (shredding.validate, ()),
        (shredding.unshred, ()),
        (schema.infer, ()),
    ):
        assert outcome(action, one, *arguments) == outcome(action, other, *arguments), action
    outcome(binary.decode, metadata, value)
    outcome(binary.to_json, metadata, value)
    outcome(layouts.unshred, pa.array([{"untyped_value": metadata + value}]))
    try:
        shredded = shredding.shred(one, as_type)
    except DeltaVariantError:
        return False
    shredded.validate(full=True)
    shredding.unshred(shredded).validate(full=True)
    outcome(shredding.unshred, corrupted(rng, shredded))
    return True


def test_mutated_variants():
    """A mutated Variant gives a value or DeltaVariantError, whatever bytes are around it; what shreds also unshreds."""
    rng = random.Random(SEED)
    good = size = 0
    for round_ in range(ROUNDS):
        metadata, value = mutated(rng)
        as_type = rng.choice(SCHEMAS)
        size += len(metadata) + len(value)
        try:
            good += check_readers(metadata, value, rng, as_type)
        except BaseException:
            print(f"FUZZ_SEED={SEED}, round {round_}: {metadata.hex()} {value.hex()} as {as_type}")
            raise
        if round_ == min(1000, ROUNDS // 2):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert 0 < good < ROUNDS
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 256 << 10, f"{grown} KiB"
    print(f"FUZZ_SEED={SEED}: {ROUNDS} mutated Variants, {size} bytes, {good} of them still Variants, {grown} KiB of memory")

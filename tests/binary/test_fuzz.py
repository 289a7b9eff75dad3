"""Mutated Variants give a value or an error of this package, whatever bytes are around them, in bounded memory.

FUZZ_ROUNDS sets the length of a run, FUZZ_SEED repeats one: FUZZ_ROUNDS=1000000 python -m pytest -s tests/binary/test_fuzz.py
"""

import random
import resource
from contextlib import suppress

import pyarrow as pa

from delta_variant import binary, layouts, schema, shredding
from delta_variant.errors import DeltaVariantError
from tests.binary.mutations import ROUNDS, SEED, mutated, surrounded

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


def check_fields(metadata, value):
    """A field alone is what it is in the whole Variant, unless that is an error; also of other bytes it is no other error."""
    whole = None
    with suppress(DeltaVariantError):
        whole = binary.decode(metadata, value)
    if not isinstance(whole, dict):
        outcome(binary.decode_field, metadata, value, "a")
        return
    assert binary.decode_field(metadata, value, "no such name") is None
    for name, field in whole.items():
        assert outcome(binary.decode_field, metadata, value, name) == str(field)


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
    outcome(binary.to_json, metadata, value)
    check_fields(metadata, value)
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

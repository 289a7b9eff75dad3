"""Ways to damage a file: its bytes, the footers and page headers of Parquet, JSON. In: a generator and bytes. Out: others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.damaged_files import thrift_trees

if TYPE_CHECKING:
    from random import Random

_END = 8  # the length of a footer and the magic bytes
_ROW_GROUPS, _COLUMNS, _META_DATA, _SIZE, _DATA, _DICTIONARY, _STATISTICS, _SIZES = 4, 1, 3, 7, 9, 11, 12, 16

RAW = (
    "null", "true", "-1", "0", "1", "2147483648", "9223372036854775808", "1180591620717411303424", "1e308", "1e999999999",
    "-1e-999999999", "0.1", "Infinity", "NaN", '""', '"x"', '"\\ud800"', '"\\u0000"', "[]", "{}", "[null]", '{"a":1}',
    "9" * 5000,
    "[" * 100_000, '{"a":' * 5000 + "1" + "}" * 5000,
)  # fmt: skip
"""JSON texts that values are replaced by."""


def of_bytes(rng: Random, data: bytes) -> bytes:
    """Some bytes changed, moved, zeroed, inserted or deleted, or the end cut off."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 8])):
        if not out:
            break
        at, size = rng.randrange(len(out)), rng.choice([1, 2, 4, 16, 64])
        match rng.randrange(8):
            case 0 | 1:
                out[at] ^= 1 << rng.randrange(8)
            case 2:
                out[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            case 3:
                out[at : at + size] = bytes(len(out[at : at + size]))
            case 4:
                start = rng.randrange(len(out))
                out[at : at + size] = out[start : start + size]
            case 5:
                out[at:at] = rng.randbytes(size)
            case 6:
                del out[at : at + size]
            case _ if rng.random() < 0.3:
                del out[at:]
    return bytes(out)


def split(data: bytes) -> tuple[bytes, bytes]:
    """(the bytes before the footer, the footer)."""
    size = int.from_bytes(data[-_END:-4], "little")
    return data[: -_END - size], data[-_END - size : -_END]


def joined(before: bytes, footer: bytes) -> bytes:
    """The file."""
    return before + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def of_footer(rng: Random, data: bytes) -> bytes:
    """A footer with other values, fields, lengths or bytes; everything else is as it was."""
    before, footer = split(data)
    if rng.random() < 0.3:
        changed = bytearray(footer)
        for _ in range(rng.choice([1, 1, 2, 8])):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        return joined(before, bytes(changed))
    tree, _ = thrift_trees.decode(footer)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        thrift_trees.mutate(rng, tree)
    return joined(before, thrift_trees.encode(tree))


def of_page(rng: Random, data: bytes) -> bytes:
    """A page header with other values, or other bytes in a column chunk. The file keeps its size."""
    before, footer = split(data)
    chunk = rng.choice(chunks(footer))
    start = min(chunk[_DATA], chunk.get(_DICTIONARY) or chunk[_DATA])
    if rng.random() < 0.5:
        body = bytearray(before[start : start + chunk[_SIZE]])
        for _ in range(rng.choice([1, 1, 2, 8])):
            body[rng.randrange(len(body))] = rng.randrange(256)
        return joined(before[:start] + bytes(body) + before[start + chunk[_SIZE] :], footer)
    start = rng.choice([start, chunk[_DATA]])
    end = min(chunk[_DATA], chunk.get(_DICTIONARY) or chunk[_DATA]) + chunk[_SIZE]
    header, body = thrift_trees.decode(before, start)
    for _ in range(rng.choice([1, 1, 2])):
        thrift_trees.mutate(rng, header)
    pages = (thrift_trees.encode(header) + before[body:end])[: end - start].ljust(end - start, b"\0")
    return joined(before[:start] + pages + before[end:], footer)


def chunks(footer: bytes) -> list[dict[int, Any]]:
    """The ColumnMetaData of all column chunks, as dicts by the ids of fields."""
    tree = {number: value for number, _, value in thrift_trees.decode(footer)[0]}
    groups = [{number: value for number, _, value in group} for group in tree[_ROW_GROUPS][1]]
    columns = [{number: value for number, _, value in chunk} for group in groups for chunk in group[_COLUMNS][1]]
    return [{number: value for number, _, value in chunk[_META_DATA]} for chunk in columns]


def without_statistics(data: bytes) -> bytes:
    """The file without the statistics of its column chunks."""
    before, footer = split(data)
    tree, _ = thrift_trees.decode(footer)
    for holder, at, _, path in thrift_trees.nodes(tree):
        if path == (_ROW_GROUPS, _COLUMNS, _META_DATA) and isinstance(holder[at], list):
            holder[at] = [field for field in holder[at] if field[0] != _STATISTICS]
    return joined(before, thrift_trees.encode(tree))


def statistics(data: bytes) -> Any:
    """What a footer says of its values: statistics, and key-value pairs with the file's writer; None if it is no footer."""
    try:
        footer = split(data)[1]
        others = {number: value for number, _, value in thrift_trees.decode(footer)[0] if number not in (2, _ROW_GROUPS)}
        return others, [(chunk.get(5), chunk.get(_STATISTICS)) for chunk in chunks(footer)]
    except (LookupError, TypeError, ValueError, MemoryError, RecursionError):
        return None


def of_json(rng: Random, data: bytes) -> bytes:
    """JSON lines with a value replaced, removed, repeated or moved; or other bytes."""
    if rng.random() < 0.4:
        return of_bytes(rng, data)
    lines = data.decode().splitlines()
    number = rng.randrange(len(lines))
    if rng.random() < 0.1:
        return "\n".join(rng.choice([lines[:number] + lines[number + 1 :], lines + [lines[number]], lines[::-1]])).encode()
    action = json.loads(lines[number])
    holder, key = rng.choice(list(_places(action)))
    found = holder[key]
    text = None
    match rng.randrange(5):
        case 0:
            del holder[key]
        case 1:
            others = list(_places(action))
            other, name = rng.choice(others)
            holder[key] = json.loads(json.dumps(other[name]))
        case 2 if isinstance(found, str) and found.startswith(("{", "[")):
            holder[key] = of_json(rng, found.encode()).decode(errors="replace")
        case 3 if isinstance(found, str):
            holder[key] = of_bytes(rng, found.encode()).decode(errors="replace")
        case _:
            holder[key], text = "\0", rng.choice(RAW)
    lines[number] = json.dumps(action)
    if text is not None:
        lines[number] = lines[number].replace('"\\u0000"', text, 1)
    return "\n".join(lines).encode()


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _places(inner)

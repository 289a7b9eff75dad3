"""Columns of older layouts, and Variants in forms that this package does not write: what the tests of layouts read."""

from __future__ import annotations

import pyarrow as pa

from delta_variant import binary, schema
from delta_variant import types as t

B = pa.binary()


def utf16(name):
    """A sort key for the order of Java's strings, in which Spark has the fields of objects."""
    return name.encode("utf-16-be")


def encode(obj, keys, rng=None, order=utf16):
    """The value of a Variant whose dictionary is `keys`. With `rng`, containers have wide offsets and shuffled children.

    order: the sort key of a field's name; str.encode is the order of the encoding specification.
    """
    if not isinstance(obj, (dict, list)):
        return binary.encode(obj)[1]
    fields = sorted(obj.items(), key=lambda item: order(item[0])) if isinstance(obj, dict) else list(enumerate(obj))
    children = [encode(child, keys, rng, order) for _, child in fields]
    at, body = [0] * len(children), b""
    for i in rng.sample(range(len(children)), len(children)) if rng else range(len(children)):
        at[i] = len(body)
        body += children[i]
    ids = [keys.index(name) for name, _ in fields] if isinstance(obj, dict) else []
    large = rng is not None or len(children) > 0xFF
    id_width, width = (4 if rng else max(1, (max(n, default=0).bit_length() + 7) // 8) for n in (ids, [len(body)]))
    header = (width - 1 | (id_width - 1) << 2 | large << 4) if isinstance(obj, dict) else (width - 1 | large << 2)
    numbers = [(len(children), 4 if large else 1), *((n, id_width) for n in ids), *((n, width) for n in (*at, len(body)))]
    basic = t.OBJECT if isinstance(obj, dict) else t.ARRAY
    return bytes([header << 2 | basic]) + b"".join(n.to_bytes(size, "little") for n, size in numbers) + body


def names_in(obj):
    """All names in a Variant, in the order of their bytes."""
    return binary.decode_metadata(binary.encode(obj)[0])


class Writer:
    """Rewrites rows of the final layout in an older one.

    value, object_, array: the names of the columns. direct: whether the field or element at a path is a bare column.
    own: bytes begin with their own metadata. order: as for `encode`.
    """

    def __init__(self, value, object_="typed_value", array="typed_value", direct=lambda path: False, own=False, order=utf16):
        self.value, self.names, self.direct, self.own = value, {"object": object_, "array": array}, direct, own
        self.order = order

    def write(self, array, originals):
        """A shredded column in this layout; `originals` are its values in Python."""
        group = pa.struct([field for field in array.type if field.name != "metadata"])
        kind = self.group_type(group, "$")
        rows = []
        for row, original in zip(array.to_pylist(), originals, strict=True):
            if row is None:
                rows.append(None)
                continue
            self.keys = binary.decode_metadata(row["metadata"])
            rows.append({"metadata": row["metadata"], **self.group(row, original, group, "$")})
            if self.own:
                del rows[-1]["metadata"]
        return pa.array(rows, kind if self.own else pa.struct([("metadata", B), *kind]))

    def column(self, kind):
        if pa.types.is_struct(kind):
            return self.names["object"]
        return self.names["array"] if schema.is_list(kind) else "typed_value"

    def group_type(self, group, path):
        fields = [(self.value, B)]
        if group.get_field_index("typed_value") >= 0:
            typed = group.field("typed_value").type
            fields.append((self.column(typed), self.typed_type(typed, path)))
        return pa.struct(fields)

    def typed_type(self, typed, path):
        if pa.types.is_struct(typed):
            return pa.struct([(field.name, self.place_type(field.type, f"{path}.{field.name}")) for field in typed])
        return pa.list_(self.place_type(typed.value_type, f"{path}[*]")) if schema.is_list(typed) else typed

    def is_direct(self, group, path):
        return self.direct(path) and group.get_field_index("typed_value") >= 0

    def place_type(self, group, path):
        if self.is_direct(group, path):
            return self.typed_type(group.field("typed_value").type, path)
        return self.group_type(group, path)

    def group(self, row, original, kind, path):
        """The columns of a value that is not missing."""
        if row.get("typed_value") is None:
            return {self.value: self.encode(original)}
        typed = kind.field("typed_value").type
        stored, rest = self.typed(row["typed_value"], original, typed, path)
        return {self.column(typed): stored, self.value: self.encode(rest) if rest else None}

    def typed(self, row, original, kind, path):
        """(the content of the typed column, the fields of an object that are not in it)."""
        if pa.types.is_struct(kind):
            rest = {name: child for name, child in original.items() if kind.get_field_index(name) < 0}
            stored = {}
            for field in kind:
                if field.name in original:
                    place = (row[field.name], original[field.name], field.type, f"{path}.{field.name}")
                    stored[field.name], left = self.place(*place)
                    if left:
                        rest[field.name] = original[field.name]
            return stored, rest
        if schema.is_list(kind):
            return [self.place(*pair, kind.value_type, f"{path}[*]")[0] for pair in zip(row, original, strict=True)], {}
        return row, {}

    def place(self, row, original, kind, path):
        """(the column of a field or an element, whether its value has to be stored elsewhere)."""
        if not self.is_direct(kind, path):
            return self.group(row, original, kind, path), False
        if row["typed_value"] is None:
            return None, True
        stored, rest = self.typed(row["typed_value"], original, kind.field("typed_value").type, path)
        return (None, True) if rest else (stored, False)

    def encode(self, obj):
        if not self.own:
            return encode(obj, self.keys, None, self.order)
        keys = names_in(obj)
        return binary.encode_metadata(keys) + encode(obj, keys, None, self.order)

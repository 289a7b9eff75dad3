"""Queries that use the paths of a generated table wherever SQL takes an expression."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from tests.generated.predicates import NATURAL, TYPES, Predicates, Sql
from tests.generated.tables import Table

if TYPE_CHECKING:
    from delta_variant.paths import Keys

_COLUMN = re.compile(r"(?<![\w.$'\"])(v|s|id|p)(?=[.:,)\s]|$)")


class Queries:
    """Queries about one table."""

    def __init__(self, table: Table) -> None:
        self.table, self.rng = table, table.rng
        self.predicates = Predicates(table)

    def any(self) -> str:
        forms = [self.projection] * 2 + [self.aggregate] * 2 + [self.functions, self.join, self.semi_join, self.window]
        forms += [self.ordered, self.union, self.subquery, self.generator, self.whole, self.outer, self.metadata]
        forms += [self.extremes, self.cube, self.structs] + [self.exploded] * 2
        return self.rng.choice(forms)()

    def value(self, alias: str = "t") -> str:
        """A path read as some type and cast to string, so that rows can be compared; or the Variant at the path."""
        rng = self.rng
        if rng.random() < 0.2:
            return f"cast({rng.choice([self.array, self.struct])(alias)} as string)"
        spot = rng.choice(self.table.spots)
        if rng.random() < 0.15:
            return self._of(alias, self.predicates.get(spot, "variant").asked)
        return f"cast({self.scalar(alias)} as string)"

    def array(self, alias: str) -> str:
        """An array read as an array of some type, with a cast that can fail or not."""
        spot = self.rng.choice(self.table.elements)
        kind = self.rng.choice(NATURAL[spot.kind] if self.rng.random() < 0.8 else TYPES)
        depth = sum(isinstance(key, int) for key in spot.keys)
        above = tuple(takewhile(lambda key: isinstance(key, str), spot.keys))
        asked = "array<" * depth + self.predicates.type(kind) + ">" * depth
        operand = self.predicates.get(replace(spot, keys=above), asked)
        return self._of(alias, operand.asked if self.rng.random() < 0.2 else operand.safe)

    def struct(self, alias: str) -> str:
        """An object read as a struct of some fields, with a cast that can fail or not."""
        rng, spot = self.rng, self.rng.choice(self.table.spots)
        above = spot.keys[: rng.randrange(len(spot.keys) + 1)]

        def asked(above: Keys) -> str:
            inside = [
                other
                for other in self.table.spots
                if other.column == spot.column and len(other.keys) > len(above) and other.keys[: len(above)] == above
            ]
            fields = {"missing": "int"}
            for other in rng.sample(inside, min(4, len(inside))):
                key, is_last = other.keys[len(above)], len(other.keys) == len(above) + 1
                if isinstance(key, str) and key.isidentifier():
                    fields[key] = self.predicates.type(rng.choice(NATURAL[other.kind])) if is_last else asked((*above, key))
            return f"struct<{', '.join(f'`{key}` {kind}' for key, kind in fields.items())}>"

        operand = self.predicates.get(replace(spot, keys=above), asked(above))
        return self._of(alias, operand.asked if rng.random() < 0.2 else operand.safe)

    def scalar(self, alias: str = "t") -> str:
        operand, _, _ = self.predicates.operand()
        asked = operand.asked if self.rng.random() < 0.2 else operand.safe
        return self._of(alias, f"{asked}")

    def _of(self, alias: str, text: str) -> str:
        """The expression on the columns of that alias."""
        return _COLUMN.sub(rf"{alias}.\1", text)

    def where(self, alias: str = "t") -> str:
        if self.rng.random() < 0.4:
            return ""
        tree = self.predicates.tree(1)
        sql = tree if self.rng.random() < 0.3 else Sql(tree.safe, tree.safe)
        return f"where {self._of(alias, sql.asked)}"

    def projection(self) -> str:
        columns = [f"{self.value()} c{n}" for n in range(self.rng.randrange(1, 4))]
        return f"select id, {', '.join(columns)} from {self.name} t {self.where()}"

    def structs(self) -> str:
        columns = [f"cast({self.struct('t')} as string) c{n}" for n in range(self.rng.randrange(1, 3))]
        return f"select id, {', '.join(columns)} from {self.name} t {self.where()}"

    @property
    def name(self) -> str:
        return self.table.name

    def aggregate(self) -> str:
        functions = [f"{self.rng.choice(['min', 'max', 'count', 'first_value'])}({self.scalar()})" for _ in range(2)]
        functions = [
            text.replace("first_value", "bit_xor(xxhash64") + ")" * text.startswith("first_value") for text in functions
        ]
        listed = ", ".join(f"cast({text} as string)" for text in functions)
        return f"select cast({self.scalar()} as string) k, count(*), {listed} from {self.name} t {self.where()} group by 1"

    def functions(self) -> str:
        asked = self.scalar()
        return (
            f"select count({asked}), cast(max({asked}) as string), count(distinct {asked}), "
            f"count(*) filter (where {self._of('t', self.predicates.tree(0).safe)}) from {self.name} t {self.where()}"
        )

    def extremes(self) -> str:
        """Aggregates that the log may answer."""
        functions = [f"cast({self.rng.choice(['min', 'max'])}({self.scalar()}) as string)" for _ in range(2)]
        return f"select {', '.join(functions)}, count(*) from {self.name} t"

    def cube(self) -> str:
        keys = f"cast({self.scalar()} as string) k, id % 3 l"
        largest = f"cast(max({self.scalar()}) as string)"
        return f"select {keys}, count(*), {largest} from {self.name} t {self.where()} group by cube(1, 2)"

    def join(self) -> str:
        kind = self.rng.choice(["join", "left join", "full join"])
        condition = f"cast({self.scalar('a')} as string) = cast({self.scalar('b')} as string)"
        if self.rng.random() < 0.5:
            condition += " and a.id < b.id"
        return (
            f"select a.id, b.id, {self.value('a')}, {self.value('b')} from {self.name} a {kind} {self.name} b on {condition} "
            f"{self.where('a')}"
        )

    def semi_join(self) -> str:
        inner = f"select cast({self.scalar('b')} as string) from {self.name} b {self.where('b')}"
        return f"select id, {self.value()} from {self.name} t where cast({self.scalar()} as string) in ({inner})"

    def window(self) -> str:
        return (
            f"select id, {self.value()}, row_number() over (partition by {self.scalar()} order by {self.scalar()}, id) from "
            f"{self.name} t {self.where()}"
        )

    def ordered(self) -> str:
        return f"select id, {self.value()} from {self.name} t {self.where()} order by {self.scalar()}, id limit 7"

    def union(self) -> str:
        return f"{self.projection_of_one()} union all {self.projection_of_one()}"

    def projection_of_one(self) -> str:
        return f"select id, cast({self.scalar()} as string) c from {self.name} t {self.where()}"

    def subquery(self) -> str:
        asked = self.scalar()
        inner = f"(select max(cast({asked.replace('t.', 'u.')} as string)) from {self.name} u)"
        columns = f"id, {self.value()}, {inner} m"
        return f"with t as (select * from {self.name}) select {columns} from t where cast({asked} as string) < {inner}"

    def generator(self) -> str:
        texts = f"cast({self.scalar()} as string), cast({self.scalar()} as string)"
        return f"select id, e, {self.value()} from {self.name} t lateral view explode(array({texts})) x as e {self.where()}"

    def exploded(self) -> str:
        """The elements of an array as rows, which may be arrays themselves."""
        rng, spot, tables = self.rng, self.rng.choice(self.table.elements), []
        while spot.is_element and (not tables or rng.random() < 0.6):
            at = next(at for at, key in enumerate(spot.keys) if isinstance(key, int))
            array = self.predicates.get(replace(spot, keys=spot.keys[:at]), "variant").safe
            tables.append(f"lateral variant_explode{rng.choice(['', '', '_outer'])}({self._of('t', array)}) e{len(tables)}")
            spot = replace(spot, column=f"e{len(tables) - 1}.value", keys=spot.keys[at + 1 :])
        kinds = NATURAL[spot.kind] if rng.random() < 0.8 else TYPES
        first, second = (self.predicates.get(spot, rng.choice(kinds)) for _ in range(2))
        where = rng.choice([self.where(), "", f"where {second.safe} is not null", f"where {second.safe} is null"])
        asked = first.asked if rng.random() < 0.2 else first.safe
        e = f"e{len(tables) - 1}"
        columns = rng.choice(
            [
                f"id, {e}.pos, {e}.key, cast({asked} as string), {self.value()}",
                f"cast({asked} as string) k, count(*), cast(max({second.safe}) as string)",
                f"count(*), max({e}.pos), count({asked})",
                f"count(*), max({e}.pos)",
            ]
        )
        return f"select {columns} from {self.name} t, {', '.join(tables)} {where} {'group by 1' * (' k,' in columns)}"

    def whole(self) -> str:
        return f"select id, {self.value()}, t.v, t.s from {self.name} t {self.where()}"

    def outer(self) -> str:
        """A query with a cast that is needed in some rows only."""
        predicate = self._of("b", self.predicates.tree(1).safe)
        operand, _, _ = self.predicates.operand()
        conditional = f"case when {predicate} then cast({self._of('b', operand.asked)} as string) end"
        return f"select a.id, {conditional}, b.v is null from {self.name} a left join {self.name} b on a.id = b.id + 1"

    def metadata(self) -> str:
        return f"select id, _metadata.file_name, _metadata.file_size, {self.value()} from {self.name} t {self.where()}"

"""JSON texts: columns of a DataFrame that become VARIANT columns of the table.

In: the arguments `parse_json`, `on_error` and `corrupt` of a write. Out: for the checks of the table, rows with these VARIANT
columns as Spark's `try_parse_json` makes them; for the tasks, the texts themselves, which `record_batches` parses. What no
check, computed column or sort key uses, Spark does not compute: the optimizer drops it from the plan.

Invariant: the texts travel beside the rows under names of their own, so that they cannot be taken for columns of the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from pyspark.sql import functions as F  # what PySpark programs call it
from pyspark.sql import types as t

from delta_variant.errors import InvalidSchemaError, UnsupportedFeatureError
from delta_variant.paths import quoted
from delta_variant.writer.alignment import type_name
from delta_variant.writer.plan import JsonColumns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

_CARRIED = "delta_variant JSON text of "
_MALFORMED, _SHOWN = "delta_variant found a text that is not valid JSON for ", 50
_DUPLICATE_KEYS, _VALIDATE = "spark.sql.variant.allowDuplicateKeys", "spark.sql.variant.validateUnicodeInJsonParsing"


class Parsing(TypedDict):
    """Arguments of `binary.parse_json`."""

    allow_duplicate_keys: bool
    validate_unicode: bool


def parsing(spark: SparkSession) -> Parsing:
    """The session's settings for Spark's `parse_json`."""

    def is_on(name: str, default: str) -> bool:
        return (spark.conf.get(name, default) or "").strip().lower() == "true"

    return Parsing(allow_duplicate_keys=is_on(_DUPLICATE_KEYS, "false"), validate_unicode=is_on(_VALIDATE, "true"))


def malformed(message: str) -> str | None:
    """The message of `write` about a malformed text that Spark met before a task did; None if a message is about another error.

    message: that of Spark's error.
    """
    _, found, rest = message.partition(_MALFORMED)
    if not found:
        return None
    column, text = rest.splitlines()[0].split(": ", 1)
    return (
        f"{column}: a text is not valid JSON, and begins with {text[:_SHOWN]!r}; on_error='null' makes such texts NULL, and "
        "corrupt='…' keeps them in a column"
    )


@dataclass(frozen=True)
class JsonTexts:
    """Which columns of the rows are JSON texts, and what becomes of malformed ones."""

    columns: Mapping[str, t.StructField]
    """The columns with texts, by the VARIANT columns that they become."""
    fails: bool
    """Whether a malformed text is an error; else it becomes NULL."""
    corrupt: str | None
    """The column that gets malformed texts; None if there is none."""

    @classmethod
    def of(cls, rows: t.StructType, parse_json: Mapping[str, str] | None, on_error: str, corrupt: str | None) -> JsonTexts:
        """The texts of a write; empty without `parse_json`.

        rows: the schema of its rows. Raises InvalidSchemaError for columns that are missing, of another type, or there already,
        and UnsupportedFeatureError for other arguments.
        """
        if on_error not in ("fail", "null"):
            raise UnsupportedFeatureError(f"on_error={on_error!r} is not one of fail, null")
        if not parse_json:
            if corrupt is not None or on_error != "fail":
                raise UnsupportedFeatureError("on_error and corrupt are for the texts that parse_json names: use them with it")
            return cls({}, fails=True, corrupt=None)
        if not hasattr(parse_json, "items"):
            raise InvalidSchemaError(f"parse_json={parse_json!r} must map VARIANT columns to the columns with their texts")
        if corrupt is not None and len(parse_json) > 1:
            raise UnsupportedFeatureError(f"corrupt={corrupt!r} takes the texts of one column, and parse_json names several")
        columns = {}
        for name, source in parse_json.items():
            alike = [field for field in rows if field.name.lower() == source.lower()]
            field = next((field for field in alike if field.name == source), alike[0] if len(alike) == 1 else None)
            if field is None and alike:
                names = " or ".join(field.name for field in alike)
                raise InvalidSchemaError(f"parse_json: {source} may be {names}: rename one")
            if field is None:
                raise InvalidSchemaError(f"parse_json: there is no column {source}; the columns are {', '.join(rows.names)}")
            if not isinstance(field.dataType, t.StringType | t.BinaryType):
                raise InvalidSchemaError(f"parse_json: {source} is {type_name(field.dataType)}, and texts are STRING or BINARY")
            columns[name] = field
        texts = cls(columns, fails=corrupt is None and on_error == "fail", corrupt=corrupt)
        kept = [field.name for field in rows if field.name not in texts._sources()]
        taken = {name.lower() for name in kept}
        for name in [*columns, *([] if corrupt is None else [corrupt])]:
            if name.lower() in taken:
                raise InvalidSchemaError(f"parse_json: the DataFrame has a column {name} already: drop or rename it")
            taken.add(name.lower())
        return texts

    def _sources(self) -> set[str]:
        return {field.name for field in self.columns.values()}

    def schema(self, rows: t.StructType) -> t.StructType:
        """The schema of the rows with VARIANT columns in the place of their texts, and the column for malformed ones."""
        fields = []
        for field in rows:
            named = [name for name, source in self.columns.items() if source.name == field.name]
            fields += [t.StructField(name, t.VariantType()) for name in named] or [field]
        return t.StructType([*fields, *([] if self.corrupt is None else [t.StructField(self.corrupt, t.StringType())])])

    def carried(self) -> list[t.StructField]:
        """The columns beside the rows that have the texts."""
        return [t.StructField(_CARRIED + name, source.dataType) for name, source in self.columns.items()]

    def parsed(self, rows: DataFrame) -> DataFrame:
        """The rows with the columns of `schema`, followed by those of `carried`."""
        if not self.columns:
            return rows
        texts = {name: F.col(quoted(source.name)) for name, source in self.columns.items()}
        variants = {name: self._variant(name, text.cast("string")) for name, text in texts.items()}
        columns: list[Column] = []
        for field in self.schema(rows.schema):
            if field.name in variants:
                columns.append(variants[field.name].alias(field.name))
            elif field.name == self.corrupt:
                (text,), (variant,) = texts.values(), variants.values()
                columns.append(F.when(variant.isNull(), text.cast("string")).alias(field.name))
            else:
                columns.append(F.col(quoted(field.name)))
        return rows.select(*columns, *(text.alias(_CARRIED + name) for name, text in texts.items()))

    def _variant(self, name: str, text: Column) -> Column:
        """The Variant of a text, for checks, computed columns and sort keys. A NULL would be blamed on a CHECK constraint."""
        variant = F.try_parse_json(text)
        if not self.fails:
            return variant
        what = F.concat(F.lit(f"{_MALFORMED}column {name}: "), text.substr(1, _SHOWN), F.lit("\n"))  # Spark appends its own
        return F.coalesce(variant, F.when(text.isNotNull(), F.raise_error(what)))

    def transported(self, name: str) -> Column | None:
        """What the tasks get in the place of a column of the table; None for the column itself."""
        for variant in self.columns:
            if variant.lower() == name.lower():
                return F.col(quoted(_CARRIED + variant))
        if self.corrupt is not None and self.corrupt.lower() == name.lower():
            return F.lit(None).cast("string")
        return None

    def plan(self, spark: SparkSession, schema: t.StructType, physical: t.StructType) -> JsonColumns | None:
        """What the tasks are told; None if there are no texts.

        schema, physical: the table's schema with its logical and with its physical names. Raises InvalidSchemaError for columns
        that have another type there; those that are missing there are left to `align`.
        """
        if not self.columns:
            return None
        kinds = dict.fromkeys(self.columns, t.VariantType()) | ({} if self.corrupt is None else {self.corrupt: t.StringType()})
        there = {field.name.lower(): (field.dataType, name) for field, name in zip(schema, physical.names, strict=True)}
        for name, kind in kinds.items():
            found, _ = there.get(name.lower(), (kind, ""))
            if found != kind:
                raise InvalidSchemaError(f"parse_json: {name} is {type_name(found)} in the table, and not {type_name(kind)}")
        names = {name: there[name.lower()][1] for name in kinds if name.lower() in there}
        return JsonColumns(
            columns=tuple(names[name] for name in self.columns if name in names),
            fails=self.fails,
            corrupt=names.get(self.corrupt or ""),
            **parsing(spark),
        )

"""JSON texts: columns of a DataFrame that become VARIANT columns of the table.

In: the arguments `parse_json`, `on_error` and `corrupt` of a write. Out: rows with these VARIANT columns as Spark's
`parse_json` makes them, in the last step of the plan, from where `scala/JsonTexts.scala` moves them to the tasks. Spark parses
what a constraint or a computed column of the table uses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # what PySpark programs call it
from pyspark.sql import types as T

from delta_variant.errors import InvalidSchemaError, UnsupportedFeatureError
from delta_variant.paths import quoted
from delta_variant.writer.column_types import type_name


def check_mapping(parse_json: object) -> None:
    """Raises InvalidSchemaError for an argument `parse_json` that is not a mapping."""
    if not hasattr(parse_json, "items"):
        raise InvalidSchemaError(f"parse_json={parse_json!r} must map VARIANT columns to the columns with their texts")


@dataclasses.dataclass(frozen=True)
class JsonTexts:
    """Which columns of the rows are JSON texts, and what becomes of malformed ones."""

    columns: Mapping[str, T.StructField] = dataclasses.field(default_factory=dict)
    """The columns with texts, by the VARIANT columns that they become."""
    fails: bool = True
    """Whether a malformed text is an error; else it becomes NULL."""
    corrupt: str | None = None
    """The column that gets malformed texts; None if there is none."""

    @classmethod
    def of(cls, rows: T.StructType, parse_json: Mapping[str, str] | None, on_error: str, corrupt: str | None) -> JsonTexts:
        """The texts of a write; empty without `parse_json`.

        rows: the schema of its rows. Raises InvalidSchemaError for columns that are missing, of another type, or there already,
        and UnsupportedFeatureError for other arguments.
        """
        if on_error not in ("fail", "null"):
            raise UnsupportedFeatureError(f"on_error={on_error!r} is not one of fail, null")
        if not parse_json:
            if corrupt is not None or on_error != "fail":
                raise UnsupportedFeatureError("on_error and corrupt are for the texts that parse_json names: use them with it")
            return cls()
        check_mapping(parse_json)
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
            if not isinstance(field.dataType, T.StringType | T.BinaryType):
                raise InvalidSchemaError(f"parse_json: {source} is {type_name(field.dataType)}, and texts are STRING or BINARY")
            columns[name] = field
        texts = cls(columns, fails=corrupt is None and on_error == "fail", corrupt=corrupt)
        sources = {field.name for field in columns.values()}
        taken = {field.name.lower() for field in rows if field.name not in sources}
        for name in [*columns, *([] if corrupt is None else [corrupt])]:
            if name.lower() in taken:
                raise InvalidSchemaError(f"parse_json: the DataFrame has a column {name} already: drop or rename it")
            taken.add(name.lower())
        return texts

    def schema(self, rows: T.StructType) -> T.StructType:
        """The schema of the rows with VARIANT columns in place of their texts, and the column for malformed ones."""
        fields = []
        for field in rows:
            named = [name for name, source in self.columns.items() if source.name == field.name]
            fields += [T.StructField(name, T.VariantType()) for name in named] or [field]
        return T.StructType([*fields, *([] if self.corrupt is None else [T.StructField(self.corrupt, T.StringType())])])

    def parsed(self, rows: DataFrame) -> DataFrame:
        """The rows with the columns of `schema`."""
        if not self.columns:
            return rows
        texts = {name: _text(source) for name, source in self.columns.items()}
        columns: list[Column] = []
        for field in self.schema(rows.schema):
            if field.name in texts:
                column = (F.parse_json if self.fails else F.try_parse_json)(texts[field.name])
            elif field.name == self.corrupt:
                (text,) = texts.values()
                column = F.when(F.try_parse_json(text).isNull(), text)
            else:
                column = F.col(quoted(field.name))
            columns.append(column.alias(field.name))
        return rows.select(*columns)


def _text(source: T.StructField) -> Column:
    text = F.col(quoted(source.name))
    return text if isinstance(source.dataType, T.StringType) else text.cast("string")

"""The JVM's evaluation of a predicate on bounds against Spark's own, on generated bounds and trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delta_variant import jvm
from delta_variant.messages import AllOf, AnyOf, Between, Compare, Differs, FilePredicate, HasPrefix, encoded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PROBE = """
package delta_variant;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.TypeUtils;
import org.apache.spark.sql.delta.variant.BoundValues;
import org.apache.spark.sql.delta.variant.Facts;
import org.apache.spark.sql.delta.variant.FilePredicates;
import org.apache.spark.sql.delta.variant.Messages;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.IndexedSeq;
import scala.math.Ordering;
import scala.reflect.ClassTag$;

public class Probe {
  public static int[] of(String text, InternalRow[] rows, StructType schema, InternalRow lists, StructType of) {
    List bounds = new ArrayList();
    for (int c = 0; c < schema.length(); c++) bounds.add(new Column(rows, c, schema));
    List constants = new ArrayList();
    for (int c = 0; c < of.length(); c++) {
      constants.add(lists.getArray(c).toObjectArray(((ArrayType) of.fields()[c].dataType()).elementType()));
    }
    Messages.FilePredicate predicate =
        (Messages.FilePredicate) Messages.decoded(text, ClassTag$.MODULE$.apply(Messages.FilePredicate.class));
    Facts facts = new Facts(indexed(bounds), indexed(constants), indexed(new ArrayList()), Option.empty());
    Function1 test = FilePredicates.test(predicate, facts);
    int[] answers = new int[rows.length];
    for (int file = 0; file < answers.length; file++) answers[file] = ((Integer) test.apply(Integer.valueOf(file))).intValue();
    return answers;
  }

  private static IndexedSeq indexed(List values) {
    return scala.jdk.javaapi.CollectionConverters.asScala(values).toIndexedSeq();
  }

  private static class Column implements BoundValues {
    private final InternalRow[] rows;
    private final int at;
    private final StructType schema;

    Column(InternalRow[] rows, int at, StructType schema) {
      this.rows = rows;
      this.at = at;
      this.schema = schema;
    }

    public Object of(int file) {
      return rows[file].isNullAt(at) ? null : rows[file].get(at, schema.fields()[at].dataType());
    }

    public Ordering ordering() {
      return TypeUtils.getInterpretedOrdering(schema.fields()[at].dataType());
    }
  }
}
"""
"""Java, since Janino is in every session."""

VALUES = {
    "tinyint": ["-3Y", "0Y", "5Y", "127Y"],
    "int": ["-3", "0", "5", "7", "2147483647"],
    "bigint": ["-3L", "0L", "5L", "9223372036854775807L"],
    "decimal(10,2)": ["-3.10BD", "0BD", "5.00BD", "5.05BD"],
    "decimal(38,4)": ["-3.1BD", "5BD", "1234567890123456789012345678901234.5BD"],
    "float": ["float('-inf')", "float(-1.5)", "float(2.5)", "float('nan')"],
    "double": ["double('-inf')", "-1.5D", "2.5D", "double('inf')", "double('nan')"],
    "string": ["''", "'a'", "'ab'", "'abc'", "'b'", "'é'", "'\uffff'", "'\U0001f600'"],
    "boolean": ["true", "false"],
    "date": ["date'0001-01-01'", "date'1970-01-01'", "date'2024-02-29'"],
    "timestamp": ["timestamp_micros(-1)", "timestamp_micros(0)", "timestamp_seconds(5)"],
    "timestamp_ntz": ["timestamp_ntz'1969-12-31 23:59:59.999999'", "timestamp_ntz'2024-02-29 12:00:00'"],
}
ZEROS = {"float": ["float(0.0)", "float('-0.0')"], "double": ["0.0D", "-0.0D"]}  # alone in a list: see Tree.sorted


class Case(NamedTuple):
    """Bounds of some files, two of each of two types, and predicates on them, also in SQL."""

    types: list[str]
    rows: list[list[str]]
    lists: list[tuple[str, list[str]]]
    predicates: list[tuple[FilePredicate, str]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    types = [draw(st.sampled_from(sorted(VALUES))) for _ in range(2)]
    pools = [VALUES[kind] + ZEROS.get(kind, []) for kind in types]
    row = st.tuples(*(st.sampled_from([*pool, "null"]) for pool in pools for _ in range(2))).map(list)
    lists: list[tuple[str, list[str]]] = []

    def constants(at: int, size: int) -> int:
        some = st.lists(st.sampled_from(VALUES[types[at]]), min_size=2, max_size=size) if size > 1 else st.just([])
        lists.append((types[at], draw(some) or [draw(st.sampled_from(pools[at]))]))
        return len(lists) - 1

    def predicate(depth: int) -> tuple[FilePredicate, str]:
        if depth and draw(st.booleans()):
            kind, word = draw(st.sampled_from([(AllOf, " and "), (AnyOf, " or ")]))
            parts = [predicate(depth - 1) for _ in range(draw(st.integers(1, 3)))]
            return kind(tuple(part for part, _ in parts)), f"({word.join(sql for _, sql in parts)})"
        at = draw(st.integers(0, 1))
        low, high = 2 * at, 2 * at + 1
        ops = ["<", "<=", ">", ">=", "between", "differs"]
        op = draw(st.sampled_from([*ops, *["startswith", "NOT startswith"] * (types[at] == "string")]))
        if op in ("between", "differs"):
            numbers = tuple(constants(at, draw(st.sampled_from([1, 4]))) for _ in range(draw(st.integers(1, 2))))
            values = [value for number in numbers for value in lists[number][1]]
            among = " or ".join(f"(b{low} <= {value} and b{high} >= {value})" for value in values)
            other = f"b{low} <> b{high} or b{low} not in ({', '.join(values)})"
            return (Between if op == "between" else Differs)(low, high, numbers), f"({among if op == 'between' else other})"
        bound, number = draw(st.sampled_from([low, high])), constants(at, 1)
        value = lists[number][1][0]
        if "startswith" in op:
            return HasPrefix(bound, number, negated=op != "startswith"), f"({op}(b{bound}, {value}))"
        return Compare(op, bound, number), f"(b{bound} {op} {value})"

    predicates = [predicate(2) for _ in range(12)]
    return Case([kind for kind in types for _ in range(2)], draw(st.lists(row, min_size=4, max_size=10)), lists, predicates)


@pytest.fixture(scope="module")
def interpreted(spark: SparkSession) -> SparkSession:
    """A session that compiles no queries: each is asked once, of a few rows."""
    session = spark.newSession()
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session


@pytest.fixture(scope="module")
def probe(spark: SparkSession) -> Any:
    compiler = jvm.static(spark, "org.codehaus.janino.SimpleCompiler")()
    compiler.setParentClassLoader(jvm.loaded(spark).loader)
    compiler.cook(PROBE)
    [method] = [one for one in compiler.getClassLoader().loadClass("delta_variant.Probe").getMethods() if one.getName() == "of"]

    def answers(*arguments: Any) -> list[int]:
        listed = spark._jvm.java.util.ArrayList()
        for argument in arguments:
            listed.add(argument)
        return list(method.invoke(None, listed.toArray()))

    return answers


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(case=cases())
def test_predicates_say_what_spark_says(interpreted, probe, case):
    """The JVM and Spark agree on FALSE, NULL and TRUE, for any operators and types, with missing bounds, NaN and both zeros."""
    rows = ", ".join(f"({', '.join(row)})" for row in case.rows)
    names = [f"b{number}" for number in range(len(case.types))]
    typed = ", ".join(f"cast({name} as {kind}) {name}" for name, kind in zip(names, case.types, strict=True))
    bounds = interpreted.sql(f"select {typed} from values {rows} as t({', '.join(names)})")
    bounds.createOrReplaceTempView("bounds_of_files")
    arrays = (f"array({', '.join(f'cast({value} as {kind})' for value in values)})" for kind, values in case.lists)
    lists = interpreted.sql(f"select {', '.join(arrays)}")
    found = interpreted.sql(f"select {', '.join(sql for _, sql in case.predicates)} from bounds_of_files").collect()
    internal = [frame._jdf.queryExecution().executedPlan().executeCollect() for frame in (bounds, lists)]
    for at, (predicate, sql) in enumerate(case.predicates):
        ours = probe(encoded(predicate), internal[0], bounds._jdf.schema(), internal[1][0], lists._jdf.schema())
        assert ours == [{True: 1, False: -1, None: 0}[row[at]] for row in found], sql

package org.apache.spark.sql.delta.variant

import org.apache.hadoop.fs.Path
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.variant.VariantGet
import org.apache.spark.sql.catalyst.plans.logical.{Filter, LogicalPlan, Project}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.delta.{DeltaLog, DummySnapshot}
import org.apache.spark.sql.delta.actions.{AddFile, Metadata, Protocol}
import org.apache.spark.sql.delta.stats.PreparedDeltaFileIndex
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, LogicalRelation, PushVariantIntoScan}
import org.apache.spark.sql.types._
import org.apache.spark.types.variant.VariantBuilder
import org.apache.spark.unsafe.types.{UTF8String, VariantVal}

/**
 * Checks that the rule works in a session: plans a query on a table of two files that exist only here, in both forms in which a
 * plan can hold a path. No job runs.
 */
final class SelfTest(rule: SkipFiles, session: SparkSession) {
  import SelfTest._

  /** How many of the two files the query opens in each form. One of the files can match. Throws what the rule throws. */
  def opened: Array[Int] = {
    val path = new Path(s"file:${System.getProperty("java.io.tmpdir")}", "delta_variant-self-test")
    val log = DeltaLog.forTable(session, path)
    val schema = new StructType().add("v", VariantType)
    val metadata = Metadata(id = "self-test", schemaString = schema.json)
    val features = Some(Set("variantType", Pairs.shreddingFeature))
    val protocol = Protocol(3, 7, features, features)
    val snapshot = new DummySnapshot(log.logPath, log, metadata, protocolOpt = Some(protocol))
    val files = Numbers.map { number =>
      AddFile(number.toString, Map.empty, size = 1, modificationTime = 1, dataChange = true)
    }
    val scan = PlannedFiles.scan(snapshot, files)
    val index = PreparedDeltaFileIndex(session, log, path, None, scan, None)
    val relation = HadoopFsRelation(index, new StructType, schema, None, log.fileFormat(protocol, metadata), Map.empty)(session)
    val query = this.query(LogicalRelation(relation))
    val rows = this.rows(new LogStatistics(snapshot))
    Array(query, PushVariantIntoScan(query)).map { plan =>
      Relations.source(Relations.scanIn(rule.skipped(plan, scan, rows))).location.inputFiles.length
    }
  }

  /** WHERE variant_get(v, '$.a', 'int') = 1. */
  private def query(table: LogicalRelation): LogicalPlan = {
    val value = VariantGet(table.output.head, Literal("$.a"), IntegerType, failOnError = true, Some("UTC"))
    Project(Nil, Filter(EqualTo(value, Literal(1)), table))
  }

  /** Rows of the log: at the path `a`, file 1 has the value 1 and file 2 the value 2. */
  private def rows(log: LogStatistics): Array[InternalRow] = {
    val bounds = new StructType().add("v", VariantType)
    val stats = new StructType().add("minValues", bounds).add("maxValues", bounds)
    val output = Seq("path" -> StringType, "tags" -> MapType(StringType, StringType), "stats" -> stats).map {
      case (name, dataType) => AttributeReference(name, dataType)()
    }
    val columns = BindReferences.bindReferences(log.row(output, LogJobs.hash(output.take(1)), checked = true), output)
    Numbers.map { number =>
      val variant = VariantBuilder.parseJson(s"""{"$$['a']":$number}""", false)
      val both = InternalRow(new VariantVal(variant.getValue, variant.getMetadata))
      val file = InternalRow(UTF8String.fromString(number.toString), null, InternalRow(both, both))
      InterpretedUnsafeProjection.createProjection(columns)(file).copy(): InternalRow
    }.toArray
  }
}

object SelfTest {
  private val Numbers = Seq(1, 2)
}

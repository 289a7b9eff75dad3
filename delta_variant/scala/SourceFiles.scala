package org.apache.spark.sql.delta.variant

import java.util.{List => JList}

import scala.jdk.CollectionConverters._

import org.apache.hadoop.fs.{FileStatus, Path}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Cast, Literal}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.delta.variant.Messages.{Listing, SourceFile}
import org.apache.spark.sql.execution.datasources.{InMemoryFileIndex, NoopCache}
import org.apache.spark.sql.types.{StringType, StructType}

/**
 * Lists the files that `ingest` and `convert` read, with Spark's own listing and naming of directories.
 *
 * The scan of `binaryFile` has the same columns and leaves out empty files, and its job takes 0.1 s.
 */
final class SourceFiles(spark: SparkSession, options: Map[String, String]) {
  import SourceFiles._

  /** The files at paths and globs and below directories. */
  def list(sources: JList[String]): String = {
    val found = this.found(sources)
    val below =
      if (found.directories.isEmpty) Nil else indexed(found.directories).allFiles().map(sourceFile(_, named = false, None))
    Messages.encoded(Listing(found.files.map(sourceFile(_, named = true, None)) ++ below, found.unmatched, None, Nil, Nil))
  }

  /**
   * The same, with the columns that Spark finds in the names of directories. types: columns and their types in DDL; Spark
   * infers the others. A single glob is searched for directories from its first wildcard on.
   */
  def listFolders(sources: JList[String], types: String): String = {
    val found = this.found(sources)
    val named = found.files.map(_.getPath).toSet
    val listing =
      Listing(Nil, found.unmatched, None, found.directories.map(_.toString), found.directories.filter(isTable).map(_.toString))
    val roots = found.directories ++ found.files.map(_.getPath)
    Messages.encoded(if (roots.isEmpty) listing
      else {
        val known = Option.when(types.nonEmpty)(StructType.fromDDL(types))
        val first =
          indexed(roots, basePath(sources.asScala.toSeq).fold(options)(path => options.updated("basePath", path)), known)
        val spec = first.partitionSpec()
        val columns = spec.partitionColumns
        val index = if (columns.isEmpty) indexed(roots) else first
        val values = spec.partitions.map(partition => partition.path -> texts(partition.values, columns)).toMap
        val files = index.allFiles().map { file =>
          val here = if (columns.isEmpty) None else values.get(file.getPath.getParent)
          sourceFile(file, named.contains(file.getPath), here)
        }
        listing.copy(files = files, schema = Some(columns.json))
      })
  }

  private def found(sources: JList[String]): Found = {
    val each = sources.asScala.toSeq.map { source =>
      val path = new Path(source)
      source -> Option(path.getFileSystem(configuration).globStatus(path)).toSeq.flatten
    }
    val (directories, files) = each.flatMap(_._2).partition(_.isDirectory)
    Found(files, directories.map(_.getPath), each.collect { case (source, Seq()) => source })
  }

  private lazy val configuration = spark.sessionState.newHadoopConfWithOptions(options)

  private def isTable(directory: Path): Boolean =
    directory.getFileSystem(configuration).exists(new Path(directory, "_delta_log"))

  /** Where the directories begin that a single glob matches. */
  private def basePath(sources: Seq[String]): Option[String] = sources match {
    case Seq(glob) =>
      val wildcard = glob.indexWhere("*?[{".contains(_))
      val end = glob.lastIndexOf('/', wildcard)
      Option.when(wildcard >= 0 && end > 0)(glob.take(end))
    case _ => None
  }

  /** All files below directories. */
  private def indexed(paths: Seq[Path]): InMemoryFileIndex =
    indexed(paths, options.updated("recursiveFileLookup", "true"), None)

  private def indexed(paths: Seq[Path], parameters: Map[String, String], schema: Option[StructType]): InMemoryFileIndex =
    new InMemoryFileIndex(spark, paths, parameters, schema, NoopCache)

  private def sourceFile(file: FileStatus, named: Boolean, values: Option[Seq[Option[String]]]): SourceFile =
    SourceFile(file.getPath.toString, file.getLen, file.getModificationTime, named, values)

  private def texts(row: InternalRow, columns: StructType): Seq[Option[String]] = {
    val zone = Some(spark.sessionState.conf.sessionLocalTimeZone)
    columns.fields.toSeq.zipWithIndex.map { case (column, number) =>
      Option(Cast(Literal(row.get(number, column.dataType), column.dataType), StringType, zone).eval()).map(_.toString)
    }
  }
}

object SourceFiles {

  /** The files and directories at paths and globs. unmatched: the paths and globs without any. */
  private final case class Found(files: Seq[FileStatus], directories: Seq[Path], unmatched: Seq[String])
}

package org.apache.spark.sql.delta.variant

import java.util.{List => JList}

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.delta.DeltaLog
import org.apache.spark.sql.delta.actions.{Action, AddFile, CommitInfo, RemoveFile, SetTransaction}

/**
 * The commits that took source files, by the log: in which data files are the rows of a source file?
 *
 * A load is a commit with transaction identifiers of `ingest` or `convert`. If it appends, or replaces whole data files, its
 * data files have the rows of the files that it took, and no others. This holds until a later commit puts a deletion vector on
 * a data file, or removes it and adds other files, which may have its rows. A commit that removes data files and adds none, and
 * RESTORE, which adds files that were there before, move no rows. If RESTORE brings back files, and the log does not say whose
 * rows these have, they may have rows of every earlier load.
 *
 * @param version up to which the log is read
 * @param prefix with which the identifiers of an operation begin
 */
final class Loads(log: DeltaLog, version: Long, prefix: String, entry: Option[CatalogTable]) {
  import Loads._

  private val loads = mutable.ArrayBuffer.empty[Load]
  private val states = mutable.Map.empty[String, State] // of the data files of loads
  private val moved = mutable.Set.empty[String] // those whose rows another commit has put into other files
  private var oldest = -1L
  private var restored = -1L // the version of the last RESTORE
  private var broughtBack = -1L // and of the last RESTORE that added data files from before `oldest`

  for ((number, actions) <- Pairs.changes(log, entry).takeWhile(_._1 <= version)) {
    if (oldest < 0) oldest = number
    read(number, actions)
  }

  private def read(version: Long, actions: Seq[Action]): Unit = {
    val info = actions.collectFirst { case info: CommitInfo => info }
    val operation = info.fold("a commit without CommitInfo")(_.operation)
    val mode = info.flatMap(parameter(_, "mode")).getOrElse("")
    val isWhole = operation == "WRITE" && info.flatMap(parameter(_, "predicate")).exists(_.startsWith(Replace.Whole))
    val isRestore = operation == "RESTORE"
    val told = s"$operation in version $version"
    val identifiers =
      actions.collect { case known: SetTransaction if known.appId.startsWith(prefix) => known.appId -> known.version }.toMap
    val adds = actions.collect { case add: AddFile => add.path -> add }.toMap
    val removes = actions.collect { case remove: RemoveFile => remove.path }.toSet
    val isMove = !isWhole && !isRestore && adds.keys.exists(!removes(_))
    if (isRestore) restored = version
    for (path <- removes if states.contains(path)) {
      states(path) = if (isMove) Changed(told) else Gone(told)
      if (isMove) moved += path
    }
    for ((path, add) <- adds) {
      if (identifiers.isEmpty && isRestore && oldest > 0 && !states.contains(path)) broughtBack = version
      if (identifiers.nonEmpty || states.contains(path))
        states(path) = if (add.deletionVector != null) Changed(told) else Intact
    }
    if (isRestore)
      for (path <- moved if states(path).isInstanceOf[Gone]) states(path) = Changed(told) // files with its rows may be back
    if (identifiers.nonEmpty) {
      val isAppend = operation.startsWith("CREATE TABLE") || operation == "WRITE" && mode == "Append"
      val fault = Option.when(!isWhole && (!isAppend || removes.nonEmpty))(told)
      loads += new Load(version, identifiers, adds.keysIterator.toSet, isReload = operation == "WRITE" && mode == "Overwrite",
        fault)
    }
  }

  /**
   * Whether all rows of a file in any version of the table come from one load: the only one, by a log that is whole, or the
   * last, if that removed the old rows and no RESTORE came after it.
   */
  def isOfOne(identifier: String): Boolean = {
    val mine = loads.filter(_.identifiers.contains(identifier))
    mine.lastOption.exists { last =>
      oldest == 0 && mine.count(!_.isReload) == 1 || last.isReload && last.version > restored
    }
  }

  /** The loads whose data files have rows of source files, and the loads that took other files of the same loads. */
  def of(identifiers: JList[String]): String = {
    val wanted = mutable.Queue.from(identifiers.asScala)
    val seen = mutable.Set.from(wanted)
    val taken = mutable.Set.empty[Load]
    val (found, missing) = (mutable.ArrayBuffer.empty[Messages.Load], mutable.ArrayBuffer.empty[String])
    while (wanted.nonEmpty) {
      val identifier = wanted.dequeue()
      val mine = loads.filter(_.identifiers.contains(identifier))
      if (mine.isEmpty) missing += identifier
      for (load <- mine if taken.add(load); one <- message(load)) {
        found += one
        if (one.fault.isEmpty) wanted ++= load.identifiers.keys.filter(seen.add)
      }
    }
    Messages.encoded(Messages.FoundLoads(found.toSeq, missing.toSeq, oldest))
  }

  /** None for a load without rows in the table. */
  private def message(load: Load): Option[Messages.Load] = {
    val now = load.files.toSeq.map(states)
    val isBack = load.version < broughtBack // rows that it replaced, or others of its files, may be
    Option.when(isBack || now.exists(!_.isInstanceOf[Gone])) {
      val changed = load.fault.orElse(now.collectFirst { case Changed(by) => by; case Gone(by) => by })
      val fault =
        if (!isBack) changed.map(by => s"$by has moved, changed or deleted rows of the same data files")
        else Some(
          s"RESTORE in version $broughtBack has brought back data files from before version $oldest, with which the log begins")
      Messages.Load(load.version, fault, load.identifiers, load.files.toSeq)
    }
  }
}

object Loads {

  /**
   * What became of a data file: it is as it was written; it is gone with all of its rows; or some rows were moved or changed.
   */
  private sealed trait State
  private case object Intact extends State
  private final case class Gone(by: String) extends State
  private final case class Changed(by: String) extends State

  /** isReload: whether it removed the old rows of its files. fault: why its data files may have other rows. */
  private final class Load(
      val version: Long,
      val identifiers: Map[String, Long],
      val files: Set[String],
      val isReload: Boolean,
      val fault: Option[String])

  private def parameter(info: CommitInfo, key: String): Option[String] =
    Option(info.operationParameters).flatMap(_.get(key)).map { value =>
      val text = String.valueOf(value)
      if (text.length > 1 && text.startsWith("\"") && text.endsWith("\"")) text.substring(1, text.length - 1) else text
    }
}

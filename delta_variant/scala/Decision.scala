package org.apache.spark.sql.delta.variant

import org.apache.spark.sql.delta.actions.AddFile
import org.apache.spark.sql.delta.variant.FilePredicates.{False, Null, Test, True}
import org.apache.spark.sql.delta.variant.Messages._

/** Decides which of a scan's files stay after data skipping, and for `explain`, why. */
final class Decision(files: PlannedFiles, known: FileBounds, facts: Facts, filters: Filters) {
  import Decision._

  private var spares = false

  /** Whether Delta was not asked about ordinary columns, because that would take longer than it saves. */
  def sparesDelta: Boolean = spares

  /**
   * The files for which the predicate is TRUE or NULL. Delta is asked about ordinary columns only if that can rule out enough.
   */
  def left(predicate: FilePredicate): Seq[AddFile] = {
    val left = kept(predicate, facts)
    val others = ordinary(predicate)
    if (others.isEmpty) left
    else {
      val delta = Array.ofDim[Boolean](filters.others.size, known.size)
      val saved = PlannedFiles.bytes(left) - PlannedFiles.bytes(kept(predicate, facts.copy(others = Some(delta)))) // at most
      val isCheap = known.isSmall && others.size <= FewPredicates
      spares = saved > 0 && !isCheap && saved <= PredicateBytes * others.size
      if (saved == 0 || spares) left
      else {
        for (other <- others; file <- files.snapshot.filesForScan(Seq(filters.others(other)), false).files) {
          val number = known.number(file.path)
          if (number >= 0) delta(other)(number) = true
        }
        kept(predicate, facts.copy(others = Some(delta)))
      }
    }
  }

  private def kept(predicate: FilePredicate, facts: Facts): Seq[AddFile] = {
    val test = FilePredicates.test(predicate, facts)
    known.synchronized {
      files.all.filter { file =>
        if (Thread.currentThread().isInterrupted) throw new InterruptedException
        val number = known.number(file.path)
        number < 0 || test(number) != False
      }
    }
  }

  // ---- explain ------------------------------------------------------------------------------------------------------

  /** How many files get which verdict on each question (delta_variant/queries/findings.py). */
  def tally(verdicts: Seq[Verdict]): Seq[Tally] = verdicts.flatMap { asked =>
    val (tree, question, bounds) = (test(asked.tree), test(asked.question), test(asked.bounds))
    val member = asked.member.map(test(_))
    lazy val isIndexed = asked.member.exists(indexed => facts.members(indexed.member).hasFilters)
    def verdict(number: Int, file: AddFile): String =
      if (tree(number) == False) { if (bounds(number) == False) "out" else "index" }
      else if (member.exists(_(number) == Null) && isIndexed) "unindexed"
      else if (question(number) == True) "maybe"
      else undecided(number, file, asked)
    val counts = known.synchronized {
      files.all.map(file => known.number(file.path) -> file).collect {
        case (number, file) if number >= 0 => verdict(number, file)
      }
    }
    counts.groupBy(identity).toSeq.sortBy(_._1).map { case (name, same) => Tally(asked.number, name, same.size) }
  }

  private def test(predicate: FilePredicate): Test = FilePredicates.test(predicate, facts)

  /** The verdict on a file for which the question is neither FALSE nor TRUE. */
  private def undecided(number: Int, file: AddFile, asked: Verdict): String = asked.kind.map(facts.bounds(_).of(number)) match {
    case None => "other"
    case Some(null) => "none"
    case Some(kind) if asked.kinds.contains(kind.toString) => "other"
    case Some(kind) if !asked.marked.contains(kind.toString) => kind.toString
    case _ => if (Tags.isMarked(file)) "other" else "unmarked"
  }
}

object Decision {
  // Delta runs a job for each predicate on ordinary columns. Beyond a few, and for every one on a large table, we ask only if
  // each can save the query so many bytes.
  private val FewPredicates = 4
  private val PredicateBytes = 16L << 20

  /** The numbers of the predicates on ordinary columns that a predicate refers to. */
  private def ordinary(predicate: FilePredicate): Set[Int] = predicate match {
    case AllOf(parts) => parts.flatMap(ordinary).toSet
    case AnyOf(parts) => parts.flatMap(ordinary).toSet
    case OtherColumns(number) => Set(number)
    case _ => Set.empty
  }
}

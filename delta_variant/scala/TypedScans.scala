package org.apache.spark.sql.delta.variant

import java.lang.Boolean.parseBoolean
import java.util.Arrays

import scala.collection.mutable

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.delta.{DeltaColumnMapping, DeltaParquetFileFormat, IdMapping}
import org.apache.spark.sql.delta.actions.AddFile
import org.apache.spark.sql.delta.variant.Footers.Footer
import org.apache.spark.sql.execution.datasources.LogicalRelation
import org.apache.spark.sql.types.{LongType, NullType, VariantType}

/**
 * The optimizer rule for typed reading. It finds the Delta scans whose VARIANTs a plan uses by path (Uses), answers MIN, MAX
 * and COUNT(*) from the log where possible (LogAggregates), groups the files by the types that the log or their footers prove
 * for these paths (FileBounds, Footers), and replaces the scan by a plan that reads the typed columns (TypedPlan).
 */
final class TypedScans(python: Python) extends SafeRule(TypedScans.Name, "reading", python) {
  import TypedScans._

  override protected def rewritten(plan: LogicalPlan): LogicalPlan =
    if (parseBoolean(conf.getConfString(Setting, "true"))) visit(plan) else plan

  private def visit(plan: LogicalPlan): LogicalPlan = {
    val open = mutable.Queue.from(plan.collect { case OpenScan(scan, files) => scan -> files })
    var result = plan
    while (open.nonEmpty) {
      val (scan, files) = open.dequeue()
      val before = result
      result = orElse(before) {
        val uses = new Uses(before, scan)
        if (uses.paths.isEmpty) before else new OneScan(before, scan, files, uses).typed(open)
      }
    }
    inSubqueries(result)(visit)
  }

  // ---- one scan -----------------------------------------------------------------------------------------------------

  private final class OneScan(plan: LogicalPlan, scan: LogicalRelation, files: PlannedFiles, uses: Uses) {
    private val log = new LogStatistics(files.snapshot)
    private val format = Relations.source(scan).fileFormat.asInstanceOf[DeltaParquetFileFormat]
    private val paths = uses.paths
    private val requested = uses.ofPaths.map(use => Messages.PathUse(uses.number(use.pathOf.get), use.dataType.catalogString))
    private val logged = scan.getTagValue(Outcomes.Logged)
    private val number = Shared.scans.incrementAndGet()
    private lazy val outcome = Messages.Reading(number, files.all.size, logged.getOrElse(0), 0, Nil, Nil)

    /**
     * The plan in which the scan is read from typed columns, as far as possible. If the log answers for some of its files, the
     * scan of the others is added to `open`.
     */
    def typed(open: mutable.Queue[(LogicalRelation, PlannedFiles)]): LogicalPlan =
      if (uses.obstacle.isDefined) unchanged(uses.obstacle.toSeq)
      else if (files.all.size.toLong * paths.size > MaxLeaves) {
        unchanged(Seq(s"${paths.size} paths are too many for ${files.all.size} files"))
      } else answeredByLog(open).getOrElse {
        val proofs = python.ask[Messages.ProofsReply](Messages.ProofsRequest(log.columns, paths.map(used), requested))
        if (proofs.reasons.nonEmpty) unchanged(proofs.reasons) else byProofs(proofs)
      }

    /** The plan as it is; `explain` shows the reasons. */
    private def unchanged(reasons: Seq[String]): LogicalPlan = {
      scan.setTagValue(Outcomes.Reading, outcome.copy(reasons = reasons))
      plan
    }

    private def column(path: PathOf): Seq[String] =
      path.variant.root.fields(format.referenceSchema).map(DeltaColumnMapping.getPhysicalName)

    private def used(path: PathOf): Messages.UsedPath =
      Messages.UsedPath(column(path), path.variant.root.name, path.path, array(path))

    /** The number of the array in whose elements a path is. */
    private def array(path: PathOf): Option[Int] = path.variant.elementOf.map(uses.number)

    // ---- the log ----------------------------------------------------------------------------------------------------

    /** The plan in which the log answers for the files that it decides; None if it decides none. */
    private def answeredByLog(open: mutable.Queue[(LogicalRelation, PlannedFiles)]): Option[LogicalPlan] = {
      val isPossible = logged.isEmpty && files.purpose == PlannedFiles.OfQuery && files.all.exists(Tags.has(_, Tags.marker))
      for {
        aggregates <- Option.when(isPossible)(LogAggregates.of(uses)).flatten
        bounds =
          python.ask[Messages.ExtremesReply](Messages.ExtremesRequest(log.columns, aggregates.requested.map(extreme))).bounds
        if bounds.nonEmpty
        known = FileBounds.of(log, files.scan, Shared.bounds) if known.failure.isEmpty
        types = aggregates.requested.map(use => use.dataType.catalogString -> use.dataType).toMap
        values = known.read(log, TypedBound.all(bounds, types, conf.sessionLocalTimeZone))
        answer = aggregates.decide(files.all, known, values)
        decided = files.all.size - answer.others.size if decided > 0
      } yield {
        if (answer.others.isEmpty) {
          answer.plan(Explain.described(scan).copy(bounds = Some(0), reading = Some(outcome.copy(files = 0, logged = decided))))
        } else {
          val narrowed = files.narrowed(answer.others)
          val (plan, rest) = answer.plan(Relations.over(aggregates.scan, narrowed))
          Outcomes.copy(scan, rest, Outcomes.Skipping)
          rest.setTagValue(Outcomes.Logged, decided)
          open.enqueue(rest -> files.copy(index = narrowed))
          plan
        }
      }
    }

    private def extreme(use: Use): Messages.TypedPath =
      Messages.TypedPath(column(use.pathOf.get), use.path.get, use.dataType.catalogString)

    // ---- typed columns ----------------------------------------------------------------------------------------------

    private def byProofs(reply: Messages.ProofsReply): LogicalPlan = {
      val proven = files.all.map(_ => new Proven(paths.size))
      // The snapshot of a stream is of its start, and lacks the files that came later.
      val known = Option.when(reply.bounds.nonEmpty && !files.isStream && files.all.exists(Tags.provesTypes)) {
        FileBounds.of(log, files.scan, Shared.bounds)
      }
      known.flatMap(_.failure) match {
        case Some(failure) => unchanged(Seq(s"the bounds of this version could not be read: $failure"))
        case None =>
          known.foreach(proveByLog(_, reply, proven))
          proveStructs(proven)
          val footers = if (hasFooters) proveByFooters(reply, proven) else Map.empty[Int, Footer]
          if (files.isStream) shareResiduals(proven)
          val counts = new Array[Int](paths.size)
          val fileGroups = mutable.LinkedHashMap.empty[Proven, mutable.ArrayBuffer[Int]]
          val others = mutable.ArrayBuffer.empty[AddFile]
          var file = 0
          while (file < proven.size) {
            proven(file).addTo(counts)
            if (proven(file).isWhole) fileGroups.getOrElseUpdate(proven(file), mutable.ArrayBuffer.empty) += file
            else others += files.all(file)
            file += 1
          }
          val described = paths.zip(counts).map { case (path, count) =>
            Messages.ProvenPath(path.variant.root.name, path.path, array(path), count)
          }
          def width(file: Int) =
            footers.get(file).map(_.width).orElse(known.map(_.width(files.all(file).path))).getOrElse(0)
          val all = fileGroups.iterator.map { case (proven, some) =>
            ProvenFiles(proven, some.map(files.all(_)).toSeq, width(some.head))
          }
          replaced(all.toIndexedSeq, others.toSeq, stepsOf(reply), outcome.copy(paths = described))
      }
    }

    private def stepsOf(reply: Messages.ProofsReply): Map[PathOf, Seq[Messages.Step]] =
      paths.zip(reply.proofs.map(_.steps)).toMap

    /** Sets the types that the log proves, and the smallest types that can hold the integers. */
    private def proveByLog(known: FileBounds, reply: Messages.ProofsReply, proven: IndexedSeq[Proven]): Unit = {
      val bounds = known.read(log, TypedBound.all(reply.bounds, Map("bigint" -> LongType), conf.sessionLocalTimeZone))
      def at(number: Messages.Proof => Option[Int]) = reply.proofs.map(number(_).map(bounds(_)).orNull).toArray
      val (leaves, least, most) = (at(_.leaf), at(_.range), at(_.range.map(_ + 1)))
      known.synchronized {
        var file = 0
        while (file < proven.size) { // loops without objects: a large table has millions of leaves
          val number = known.number(files.all(file).path)
          var path = 0
          while (number >= 0 && path < leaves.length) {
            if (leaves(path) != null) proven(file).types(path) = leaves(path).of(number).asInstanceOf[String]
            if (least(path) != null) proven(file).rooms(path) = room(least(path).of(number), most(path).of(number))
            path += 1
          }
          file += 1
        }
      }
    }

    private def room(least: Any, most: Any): String =
      if (least == null || most == null) null else LeafTypes.room(least.asInstanceOf[Long], most.asInstanceOf[Long])

    /**
     * Whether footers can prove types: files may be shredded, and columns are found by name. With column mapping by id, other
     * writers may use any names.
     */
    private def hasFooters: Boolean = {
      val features = files.snapshot.protocol.readerAndWriterFeatureNames
      ShreddingFeatures.exists(features.contains) && format.columnMappingMode != IdMapping
    }

    /** Sets the types and the residuals that footers tell where the log proves no type. Returns the footers by file. */
    private def proveByFooters(reply: Messages.ProofsReply, proven: IndexedSeq[Proven]): Map[Int, Footer] = {
      val columns = paths.map(column)
      val keys = paths.map(_.keys(stepsOf(reply)))
      val variants =
        uses.ofPaths.filter(_.dataType.existsRecursively(_ == VariantType)).flatMap(_.pathOf).map(uses.number).toSet
      val unproven = files.all.indices.filterNot(proven(_).isWhole)
      val leastBytes = conf.getConfString(FooterBytes, DefaultBytes).toLong
      // A stream's batch is read in one way: the footers of its smaller files tell whether all of it is read from typed columns.
      val isAnySize = files.isStream && files.all.exists(_.size >= leastBytes)
      val read = Shared.footers.of(files.index, unproven.map(files.all(_)), if (isAnySize) 0 else leastBytes)
      for {
        (file, Some(footer)) <- unproven.zip(read)
        path <- paths.indices if proven(file).types(path) == null
        found <- footer.columns(paths(path), columns(path), keys(path), variants(path))
        if found.residuals.isEmpty || !paths(path).isExploded // no row may have an object there, whose fields would be rows
      } {
        proven(file).types(path) = found.name
        proven(file).residuals(path) = found.residuals
      }
      proveStructs(unproven.map(proven(_)))
      unproven.zip(read).collect { case (file, Some(footer)) => file -> footer }.toMap
    }

    /**
     * Lets files with columns of the same types be read alike, with all `value` columns that one of them needs. A path without a
     * typed column is only in the last `value` above it, which is not the same in all files.
     */
    private def shareResiduals(proven: Seq[Proven]): Unit =
      for (alike <- proven.groupBy(_.types.toSeq).values; path <- paths.indices) {
        val needed = alike.map(_.residuals(path)).filter(_.nonEmpty).distinct
        if (needed.size == 1 || alike.head.types(path) != LeafTypes.Void) {
          alike.foreach(_.residuals(path) = needed.flatten.distinct.sorted)
        }
      }

    /** Settles the types of paths that are asked for as structs, and of their fields. */
    private def proveStructs(proven: Seq[Proven]): Unit = {
      val isUsed = uses.all.flatMap(_.pathOf).map(uses.number).toSet // and not only in a struct
      for (use <- uses.ofPaths if use.isObject) {
        val number = uses.number(use.pathOf.get)
        val fields = use.withFields.tail.flatMap(_.pathOf).map(uses.number)
        proven.map(_.types).foreach { types =>
          if (types(number) == LeafTypes.Object) {
            if (fields.map(types).forall(IsNoColumn)) types(number) = null // a struct of which no column is read would be NULL
          } else if (types(number) != null) { // no field is read
            for (field <- fields if types(field) == null && !isUsed(field)) types(field) = LeafTypes.Void
          }
        }
      }
    }

    private def replaced(
        fileGroups: IndexedSeq[ProvenFiles],
        others: Seq[AddFile],
        steps: Map[PathOf, Seq[Messages.Step]],
        outcome: Messages.Reading): LogicalPlan = {
      val groups =
        if (fileGroups.isEmpty) Nil
        else python.ask[Messages.GroupsReply](Messages.GroupsRequest(requested, fileGroups.map(_.message))).groups
      val typed = groups.map { group =>
        val alike = fileGroups(group.number)
        val types = paths.zip(alike.proven.types).map {
          case (path, name) if path.isExploded && !LeafTypes.isArray(name) => path -> NullType // it has no elements
          case (path, name) => path -> LeafTypes.dataType(name)
        }.toMap
        val residuals = paths.zip(alike.proven.residuals).toMap
        TypedPlan.TypedFiles(alike.files, alike.width, types, residuals, uses.ofPaths.zip(group.casts).toMap)
      }
      val left = others ++ fileGroups.indices.filterNot(groups.map(_.number).contains).flatMap(fileGroups(_).files)
      val all = typed ++ Option.when(left.nonEmpty)(TypedPlan.SparkFiles(left))
      val (result, relations, done) =
        if (fileGroups.isEmpty) (plan, Nil, outcome)
        else if (all.size > 1 && files.isStream) {
          // Spark counts a stream's rows only if its plan has as many leaves as sources.
          (plan, Nil, outcome.copy(reasons = Seq("a batch of a stream is read in one way, and its files differ")))
        } else if (all.size > 1 && !files.isCommand && uses.dependsOnPartitions) {
          (plan, Nil, outcome.copy(reasons = Seq("the query's rows depend on how they are spread over partitions")))
        } else {
          val (result, relations) = new TypedPlan(uses, files, steps, all).plan
          (result, relations, outcome.copy(typed = typed.map(_.files.size).sum))
        }
      relations.foreach(Outcomes.copy(scan, _, Outcomes.Skipping))
      (scan +: relations).foreach(_.setTagValue(Outcomes.Reading, done))
      result
    }
  }
}

object TypedScans {
  val Name = "delta_variant.TypedScans"
  private val Setting = "spark.delta_variant.typedReading"
  private val FooterBytes = "spark.delta_variant.footerBytes" // footers of smaller files are not read
  private val DefaultBytes = "262144" // Spark's scan of fewer bytes takes no longer than the footer
  private val MaxLeaves = 4000000L // types of paths in all files of a scan: a few seconds, the first time
  private val IsNoColumn = Set(null, LeafTypes.Void, LeafTypes.Object)
  private val ShreddingFeatures = Seq("variantShredding", "variantShredding-preview")

  /** A Delta scan with VARIANTs that the rule has not visited yet. */
  private object OpenScan {
    def unapply(plan: LogicalPlan): Option[(LogicalRelation, PlannedFiles)] = plan match {
      case PlannedScan(scan, files)
          if Columns.hasVariant(scan) && scan.getTagValue(Outcomes.Reading).isEmpty &&
            Relations.source(scan).fileFormat.getClass == classOf[DeltaParquetFileFormat] => Some(scan -> files)
      case _ => None
    }
  }

  /**
   * By path, the type of a file's typed column and the smallest type that can hold its integers, null where they are not proven,
   * and the `value` columns that hold values of the path too (Footers.PathColumns).
   */
  private final class Proven(paths: Int) {
    val types = new Array[String](paths)
    val rooms = new Array[String](paths)
    val residuals = Array.fill[Seq[Int]](paths)(Nil)

    /** Counts, by path, the files in which its type is proven. */
    def addTo(counts: Array[Int]): Unit = {
      var path = 0
      while (path < counts.length) {
        if (types(path) != null) counts(path) += 1
        path += 1
      }
    }

    def isWhole: Boolean = {
      var path = 0
      while (path < types.length && types(path) != null) path += 1
      path == types.length
    }

    override def equals(other: Any): Boolean = other match {
      case that: Proven =>
        all.corresponds(that.all)(Arrays.equals(_, _))
      case _ => false
    }

    override def hashCode: Int = all.map(Arrays.hashCode(_)).hashCode

    private def all: Seq[Array[AnyRef]] = Seq(types, rooms, residuals).map(_.asInstanceOf[Array[AnyRef]])
  }

  /** Files with the same proven types. width: bytes that Spark's estimates assume for a row in the Variants of a file. */
  private final case class ProvenFiles(proven: Proven, files: Seq[AddFile], width: Int) {
    def message: Messages.FileGroup = {
      val leaves = proven.types.zip(proven.rooms).map { case (name, room) => Messages.Leaf(name, Option(room)) }
      Messages.FileGroup(leaves.toSeq, PlannedFiles.bytes(files))
    }
  }
}

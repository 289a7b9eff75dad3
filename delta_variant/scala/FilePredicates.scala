package org.apache.spark.sql.delta.variant

import scala.collection.immutable.ArraySeq

import org.apache.spark.sql.delta.variant.Messages._
import org.apache.spark.unsafe.types.UTF8String

/** Evaluates file predicates, one file after the other: FALSE, NULL or TRUE. */
object FilePredicates {
  final val False = -1
  final val Null = 0
  final val True = 1

  /** The number of a file => FALSE, NULL or TRUE. */
  type Test = Int => Int

  def test(predicate: FilePredicate, facts: Facts): Test = predicate match {
    case AllOf(parts) => joined(parts.map(test(_, facts)).toArray, False)
    case AnyOf(parts) => joined(parts.map(test(_, facts)).toArray, True)
    case OtherColumns(number) =>
      facts.others.map(_(number)).fold[Test](_ => Null)(kept => file => if (kept(file)) Null else False)
    case Indexed(member, constants) =>
      val membership = facts.members(member)
      val values = constants.flatMap(facts.constants(_)).toArray
      file => membership.of(file, values)
    case HasValues(bound) => known(facts.bounds(bound))(value => if (value == true) True else False)
    case HasPrefix(bound, constant, negated) =>
      val prefix = facts.constants(constant).head.asInstanceOf[UTF8String]
      val yes = if (negated) False else True
      known(facts.bounds(bound))(value => if (value.asInstanceOf[UTF8String].startsWith(prefix)) yes else -yes)
    case Compare(op, bound, constant) =>
      val values = facts.bounds(bound)
      val limit = facts.constants(constant).head
      val order = values.ordering
      val wanted = if (op.startsWith("<")) -1 else 1
      val orEqual = op.endsWith("=")
      known(values) { value =>
        val sign = Integer.signum(order.compare(value, limit))
        if (sign == wanted || sign == 0 && orEqual) True else False
      }
    case Between(low, high, constants) =>
      val (from, to) = (facts.bounds(low), facts.bounds(high))
      between(from, to, sorted(constants, facts, from.ordering, excluded = false))
    case Differs(low, high, constants) =>
      val (from, to) = (facts.bounds(low), facts.bounds(high))
      differs(from, to, sorted(constants, facts, from.ordering, excluded = true))
  }

  private def known(values: BoundValues)(result: Any => Int): Test = { file =>
    val value = values.of(file)
    if (value == null) Null else result(value)
  }

  /** AND, which the first FALSE decides, or OR, which the first TRUE decides. */
  private def joined(parts: Array[Test], decisive: Int): Test = { file =>
    var result = -decisive
    var part = 0
    while (part < parts.length && result != decisive) {
      val one = parts(part)(file)
      if (one == decisive || one == Null) result = one
      part += 1
    }
    result
  }

  /** Whether a constant lies between two bounds. If any does, so does the smallest one that is not below the lower bound. */
  private def between(low: BoundValues, high: BoundValues, sorted: Array[Any]): Test = { file =>
    val from = low.of(file)
    val to = high.of(file)
    val index = if (from == null) 0 else notBelow(from, sorted, low.ordering)
    if (index == sorted.length || to != null && low.ordering.gt(sorted(index), to)) False
    else if (from == null || to == null) Null
    else True
  }

  /** Whether two bounds allow values other than the constants. */
  private def differs(low: BoundValues, high: BoundValues, sorted: Array[Any]): Test = { file =>
    val from = low.of(file)
    if (from == null) Null
    else {
      val index = notBelow(from, sorted, low.ordering)
      if (index == sorted.length || !low.ordering.equiv(sorted(index), from)) True
      else known(high)(to => if (low.ordering.equiv(from, to)) False else True)(file)
    }
  }

  /** The index of the smallest of the sorted values that is not below this one; their number if all are below. */
  private def notBelow(value: Any, sorted: Array[Any], order: Ordering[Any]): Int =
    ArraySeq.unsafeWrapArray(sorted).search(value)(order).insertionPoint

  /**
   * The values of these constants, sorted. Spark's InSet distinguishes -0.0 and 0.0, while a bound of zero stands for either:
   * the zeros of a list are therefore left out where its values are excluded.
   */
  private def sorted(constants: Seq[Int], facts: Facts, order: Ordering[Any], excluded: Boolean): Array[Any] = {
    def isZero(value: Any) = value match {
      case number: Double => number == 0
      case number: Float => number == 0
      case _ => false
    }
    val values = constants.flatMap { number =>
      val list = facts.constants(number)
      if (excluded && list.length > 1) list.filterNot(isZero) else list
    }
    values.toArray.sorted(order)
  }
}

/** The values of one bound, by file, in Spark's order of their type. */
trait BoundValues {

  /** Null where it is not known. */
  def of(file: Int): Any

  def ordering: Ordering[Any]
}

/** Which files may have rows with a value at one path, by the index of values. */
trait Membership {

  /** FALSE if no row of the file has one of these values, NULL if that is not known. */
  def of(file: Int, values: Array[Any]): Int

  /** Whether anything is known of any file. */
  def hasFilters: Boolean
}

/**
 * What file predicates refer to by number.
 *
 * @param constants lists of values without NULLs, as Catalyst holds them
 * @param others by predicate on ordinary columns and by file, whether Delta's data skipping keeps the file; None if it was not
 *   asked
 */
final case class Facts(
    bounds: IndexedSeq[BoundValues],
    constants: IndexedSeq[Array[Any]],
    members: IndexedSeq[Membership] = Vector.empty,
    others: Option[Array[Array[Boolean]]] = None)

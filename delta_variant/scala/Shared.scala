package org.apache.spark.sql.delta.variant

import java.time.Duration
import java.util.WeakHashMap
import java.util.concurrent.atomic.AtomicLong

import com.google.common.cache.{Cache, CacheBuilder}
import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.delta.TransactionExecutionObserver

/** What the sessions of one driver share: caches, and what their threads are doing. */
object Shared {
  val bounds: FileBounds.Kept = FileBounds.kept()
  val footers = new Footers
  val indexes: ValueIndex.Kept = ValueIndex.kept()

  /** Scans that typed reading has looked at, to tell them from each other. */
  val scans = new AtomicLong

  /** Raised while a rule runs: queries that it plans itself are left alone. */
  val ruling = new Flag

  /** Raised while `explain` plans a query. */
  val explaining = new Flag

  /** The check that extensions were given. It cannot be removed, so what it does is changed. */
  val checks = new WeakHashMap[SparkSessionExtensions, NewSessions.Check]

  /**
   * From now on, Delta asks `TransactionObserver` for its transactions, in every thread. Delta has an observer for each thread,
   * and Spark starts the threads of streams. So this replaces the observer of threads that have none of their own.
   */
  lazy val observe: Unit = {
    val observer = new TransactionObserver
    val module = TransactionExecutionObserver
    val replace = module.getClass.getMethods.find(_.getName.endsWith("_setter_$threadObserver_$eq")).get
    replace.invoke(module, ThreadLocal.withInitial[TransactionExecutionObserver](() => observer))
  }

  /** A cache whose entries together weigh at most so much. An entry is kept until an hour after its last use. */
  def cache[V](most: Long)(weight: V => Long): Cache[String, V] = CacheBuilder.newBuilder()
    .maximumWeight(most)
    .weigher[String, V]((_, value) => math.min(weight(value), Int.MaxValue.toLong).toInt)
    .expireAfterAccess(Duration.ofHours(1))
    .concurrencyLevel(1)
    .build[String, V]()
}

/** Whether a thread is doing something. */
final class Flag {
  private val raised = new ThreadLocal[Boolean]

  def isRaised: Boolean = raised.get

  def during[T](doing: => T): T = {
    raised.set(true)
    try doing
    finally raised.remove()
  }
}

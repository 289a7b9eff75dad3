package org.apache.spark.sql.delta.variant

import scala.util.control.NonFatal

import org.apache.spark.sql.delta.{OptimisticTransaction, TransactionExecutionObserver}

/**
 * The entry point of every write: Delta asks it for each transaction (`Shared.observe`), and gets ours in place of its own.
 */
final class TransactionObserver extends TransactionExecutionObserver {
  override def createChild(): TransactionExecutionObserver = this

  override def startingTransaction(start: => OptimisticTransaction): OptimisticTransaction = {
    val transaction = start
    if (transaction.getClass ne classOf[OptimisticTransaction]) transaction // another package's
    else
      try new WritingTransaction(transaction)
      catch { case NonFatal(_) => transaction }
  }

  override def preparingCommit[T](commit: => T): T = commit
  override def beginDoCommit(): Unit = ()
  override def beginBackfill(): Unit = ()
  override def beginPostCommit(): Unit = ()
  override def transactionCommitted(): Unit = ()
  override def transactionAborted(): Unit = ()
}

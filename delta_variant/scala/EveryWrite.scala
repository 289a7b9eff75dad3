package org.apache.spark.sql.delta.variant

import java.util.{Base64, Locale}

import scala.annotation.tailrec

import org.apache.hadoop.fs.Path
import org.apache.spark.SparkContext
import org.apache.spark.api.python.{PythonFunction, SimplePythonFunction}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.delta.actions.Metadata
import org.apache.spark.sql.types.VariantType

/**
 * What the writes of an enabled session need (`WritingTransaction`), or those of the session of a call of `write`.
 *
 * @param python makes the plan of a write (delta_variant/writer/every_write.py)
 * @param function a PySpark function whose command a write replaces by its own; null without a Python driver
 * @param asked null in an enabled session
 */
final class EveryWrite(val python: Python, function: SimplePythonFunction, asked: Call) {
  import EveryWrite._

  val call: Option[Call] = Option(asked)

  private def worker = Option(function).getOrElse(PythonProcess.function)

  /** What is known of the Python that runs tasks. */
  def workers(context: SparkContext): Messages.Workers = Workers.of(context).known(context, worker.pythonExec)

  /**
   * Asks for the tasks of a write, until the request has all that they follow from. Left has the reason why Delta has to make
   * the files.
   *
   * @param storage of the data files
   */
  @tailrec def tasks(
      context: SparkContext, storage: HadoopSettings, request: Messages.WriteRequest): Either[Reason, Tasks] = {
    val reply = python.ask[Messages.WriteReply](request)
    def pickled(command: String) =
      worker.copy(command = Base64.getDecoder.decode(command).toIndexedSeq, pythonVer = reply.python)
    if (reply.probe.isDefined) {
      val probed = Workers.of(context).probed(context, worker.pythonExec, pickled(reply.probe.get))
      tasks(context, storage, request.copy(workers = probed))
    } else if (reply.wantsRegion) {
      val settings = request.storage.copy(region = Some(storage.region.getOrElse("")))
      tasks(context, storage, request.copy(storage = settings))
    } else reply.task.map(task => new Tasks(pickled(task), reply.announces)).toRight(Reason(reply.reason, reply.isFailure))
  }

  /** Remembers that tasks failed, and returns why as a reason. */
  def failed(context: SparkContext, reason: String): Reason = {
    Workers.of(context).failed()
    Reason(reason, isFailure = true)
  }

  /** Logs why Delta makes the files of a write to a table. */
  def logReason(table: Path, reason: EveryWrite.Reason): Unit =
    python.tell(if (reason.isFailure) "failed write" else "write", s"$table\n${reason.text}")
}

object EveryWrite {
  private val Setting = "spark.delta_variant.everyWrite"
  private val Property = "delta_variant.everyWrite"

  /** Why Delta makes the files of a write. isFailure: whether the user should act on it. */
  final case class Reason(text: String, isFailure: Boolean)

  /** The reason, for a call of `write`, whose files Delta does not make. */
  final class Refused(reason: String) extends RuntimeException(reason)

  /** An optimizer rule of a session whose writes are ours. */
  trait Session {
    def writes: EveryWrite
  }

  /** The rule of the session of a call of `write`: it changes no plan. */
  final class SessionOfCall(val writes: EveryWrite) extends Rule[LogicalPlan] with Session {
    override def apply(plan: LogicalPlan): LogicalPlan = plan
  }

  /** The tasks of a write. announces: the application whose first transaction identifier is committed with the files. */
  final class Tasks(val function: PythonFunction, val announces: Option[String])

  /** What the writes of a session to a table need, if the session is enabled and the table is one whose files are ours. */
  def of(session: SparkSession, metadata: Metadata): Option[EveryWrite] =
    session.experimental.extraOptimizations.collectFirst { case rule: Session => rule.writes }
      .filter(writes => writes.call.isDefined || Enabled.is(session.conf.get(_, _)) && isAsked(writes, session, metadata))

  private def isAsked(writes: EveryWrite, session: SparkSession, metadata: Metadata): Boolean = {
    val (name, value) = metadata.configuration.get(Property).map(Property -> _).getOrElse(
      Setting -> session.conf.get(Setting, "variant"))
    value.toLowerCase(Locale.ROOT) match {
      case "all" => true
      case "off" => false
      case known =>
        if (known != "variant") writes.python.tell("setting", s"$name is $value, which is not one of variant, all, off")
        metadata.schema.existsRecursively(_.isInstanceOf[VariantType])
    }
  }
}

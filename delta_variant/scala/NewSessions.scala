package org.apache.spark.sql.delta.variant

import java.lang.ref.WeakReference
import java.util.{List => JList, Map => JMap}

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.spark.sql.{SparkSession, SparkSessionExtensions}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule

/**
 * Gives the optimizer rules and settings to the sessions that newSession() makes from a session. The Connect server and the
 * Thrift server in the driver make a session for each of their clients in this way.
 *
 * New sessions share the SparkSessionExtensions of the session that they are made from, and each builds its analyzer from them
 * at its first query. Extensions take no rule for the place in the optimizer where ours belong (after Delta has prepared its
 * scans), but they take a check of analyzed plans. Before a query is optimized, the check adds the rules to its session, once.
 *
 * @param settings the settings that new sessions get
 * @param defaults the settings that they get unless they have them
 * @param python is told failures
 */
final class NewSessions(
    private val rules: JList[Rule[LogicalPlan]],
    settings: JMap[String, String],
    defaults: JMap[String, String],
    private val python: Python) {

  /**
   * Sessions that are made from this one from now on get the rules and settings. Without rules they get nothing, if this
   * session was the last to offer some.
   */
  def offer(session: SparkSession): Unit =
    offer(session.asInstanceOf[org.apache.spark.sql.classic.SparkSession].extensions, session)

  /** session: null if no session was made from the extensions yet (Extensions). */
  def offer(extensions: SparkSessionExtensions, session: SparkSession): Unit = Shared.checks.synchronized {
    val before = Option(Shared.checks.get(extensions))
    if (!rules.isEmpty || before.exists(_.from.get eq session)) {
      val check = before.getOrElse(new NewSessions.Check)
      check.from = new WeakReference(session)
      check.now = Some(this)
      if (before.isEmpty) {
        Shared.checks.put(extensions, check)
        extensions.injectCheckRule(new check.OfSession(_))
      }
    }
  }

  private def install(session: SparkSession): Unit = {
    val there = session.experimental.extraOptimizations
    if (!there.exists(_.ruleName == rules.get(0).ruleName)) { // else it is a clone of a session that has them
      def value(key: String): Option[String] = Option(session.conf.get(key, null))
      val changed = settings.asScala ++ defaults.asScala.filter { case (key, _) => value(key).isEmpty }
      val previous = changed.map { case (key, _) => key -> value(key).orNull }.asJava
      changed.foreach { case (key, value) => session.conf.set(key, value) }
      session.experimental.extraOptimizations = there ++ rules.asScala.map {
        case skips: SkipFiles => skips.restoring(previous)
        case rule => rule
      }
    }
  }
}

object NewSessions {

  /** Offers the rules, the settings and the writes of `enable`, by the Python process of this JVM (Extensions). */
  def offer(extensions: SparkSessionExtensions): Unit = {
    val (python, constants) = (PythonProcess.ours, Resources.constants)
    val skips = new SkipFiles(python, JMap.of(), new EveryWrite(python, null, null))
    val rules = JList.of[Rule[LogicalPlan]](skips, new TypedScans(python))
    Shared.observe
    new NewSessions(rules, constants.settings.asJava, constants.defaults.asJava, python).offer(extensions, null)
  }

  /** Whether the session, or a clone of it, may be given rules at its next query. */
  def mayOffer(session: SparkSession): Boolean = Shared.checks.synchronized {
    Shared.checks.containsKey(session.asInstanceOf[org.apache.spark.sql.classic.SparkSession].extensions)
  }

  /** What extensions keep: who offers rules, and what. */
  final class Check {
    var from: WeakReference[SparkSession] = _
    @volatile var now: Option[NewSessions] = None

    /** The check of a new session's plans. */
    final class OfSession(session: SparkSession) extends (LogicalPlan => Unit) {
      private var isDone = false

      override def apply(plan: LogicalPlan): Unit = synchronized {
        for (offered <- now if !isDone && !offered.rules.isEmpty && Enabled.is(session.conf.get(_, _))) {
          isDone = true
          try offered.install(session)
          catch { // the session's queries run without the rules
            case failure @ (NonFatal(_) | _: LinkageError) =>
              offered.python.tell("skipping", s"a new session could not get the rules: $failure")
          }
        }
      }
    }
  }
}

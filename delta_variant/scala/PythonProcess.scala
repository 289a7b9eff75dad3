package org.apache.spark.sql.delta.variant

import java.io.{BufferedReader, InputStream, InputStreamReader, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.{ArrayList, HashMap}
import java.util.concurrent.{
  CompletableFuture, ConcurrentHashMap, ExecutionException, LinkedBlockingQueue, TimeoutException, TimeUnit
}
import java.util.concurrent.atomic.AtomicLong

import scala.jdk.CollectionConverters._

import org.apache.spark.{SparkConf, SparkEnv}
import org.apache.spark.api.python.{PythonUtils, SimplePythonFunction}
import org.apache.spark.internal.config.{PYSPARK_DRIVER_PYTHON, PYSPARK_PYTHON}
import org.apache.spark.util.Utils

/**
 * Python where the driver has none: a process that this JVM starts at the first request (delta_variant/serving.py).
 *
 * Each line to and from the process is one frame: a number, what it is, and JSON. Replies have the number of their request, so that
 * threads do not wait for each other. The process ends when its standard input does, and so with this JVM.
 *
 * If the process ends, the requests that it has not answered are asked once again, of a new one. One that ends before it has
 * answered anything, as where Python lacks the package, is not started again for a while, which doubles each time. If a reply takes
 * too long, the process is ended, and not started again for ten minutes. While it cannot answer, requests fail at once, and the log
 * says so once for each reason.
 */
final class PythonProcess private extends Python {
  import PythonProcess._

  private var current: Option[Child] = None
  private var failures = 0
  private var next = System.nanoTime()
  private var reason = ""
  private val told = ConcurrentHashMap.newKeySet[String]

  override protected def reply(request: String): String = ask(request, again = true)

  private def ask(request: String, again: Boolean): String = {
    val child = running()
    try child.ask(request)
    catch {
      case _: Ended if again && child.hasAnswered && !child.isStuck => ask(request, again = false)
      case _: Ended => throw unavailable(child.reason)
    }
  }

  /** Passes a text to the process, which logs it as a Python driver does. */
  override protected def pass(about: String, text: String): Unit =
    if (!text.contains(Prefix)) running().tell(about, text) // else the log has it

  private def once(text: String): Unit = if (told.size < MostTold && told.add(text)) Python.log.warn(text)

  private def unavailable(reason: String): Unavailable = {
    val failure = new Unavailable(reason)
    once(failure.getMessage)
    failure
  }

  /** The process, which is started if it is not running. */
  private def running(): Child = synchronized {
    current.filter(_.isRunning).getOrElse {
      for (last <- current) {
        current = None
        if (last.hasAnswered && !last.isStuck) {
          failures = 0
          once(s"the Python process of delta_variant ended (${last.reason}) and is started again")
        } else {
          failures += 1
          val pause = if (last.isStuck) LongestPause else math.min(FirstPause << math.min(failures - 1, 20), LongestPause)
          next = System.nanoTime() + pause
          reason = last.reason
        }
      }
      if (failures > 0 && System.nanoTime() - next < 0) throw unavailable(reason)
      val child = new Child(command)
      current = Some(child)
      child
    }
  }
}

object PythonProcess {

  /** The process of this JVM. */
  lazy val ours = new PythonProcess

  private val Module = "delta_variant.serving"
  private val Prefix = "delta_variant has no Python that answers, so queries and writes run as without it"
  private val FirstPause = TimeUnit.SECONDS.toNanos(1)
  private val LongestPause = TimeUnit.MINUTES.toNanos(10)
  private val Patience = TimeUnit.MINUTES.toSeconds(2) // a reply takes milliseconds; to import the package, seconds
  private val MostTold = 100
  private val Last = "" // ends the thread that sends lines

  /** Python cannot answer. */
  final class Unavailable(reason: String) extends RuntimeException(s"$Prefix: $reason") {
    override def toString: String = getMessage
  }

  /** Python raised an exception. */
  final class Failed(text: String) extends RuntimeException(text) {
    override def toString: String = getMessage
  }

  private final class Ended extends IOException

  private def conf: SparkConf =
    Option(SparkEnv.get).map(_.conf).getOrElse(throw new IllegalStateException("there is no SparkContext"))

  /** The Python of the tasks. */
  private def ofTasks(conf: SparkConf): String =
    conf.get(PYSPARK_PYTHON).orElse(sys.env.get("PYSPARK_PYTHON")).getOrElse("python3")

  /** The Python of the driver, as spark-submit chooses it. */
  private def command: String = conf.get(PYSPARK_DRIVER_PYTHON).orElse(conf.get(PYSPARK_PYTHON))
    .orElse(sys.env.get("PYSPARK_DRIVER_PYTHON")).getOrElse(ofTasks(conf))

  /** A function of tasks without its command, and the version of Python that it is for. */
  def function: SimplePythonFunction =
    SimplePythonFunction(Nil, new HashMap, new ArrayList, ofTasks(conf), "", new ArrayList, null)

  /** A process, and the threads that read from it and write to it. */
  private final class Child(python: String) {
    private val numbers = new AtomicLong
    private val waiting = new ConcurrentHashMap[Long, CompletableFuture[String]]
    private val lines = new LinkedBlockingQueue[String]
    @volatile private var answers = false
    @volatile private var stuck = false
    @volatile private var failure: Option[String] = None
    @volatile private var lastError = ""
    private val process: Option[Process] =
      try {
        val builder = new ProcessBuilder(python, "-m", Module)
        val path = PythonUtils.mergePythonPaths(PythonUtils.sparkPythonPath, sys.env.getOrElse("PYTHONPATH", ""))
        builder.environment.put("PYTHONPATH", path)
        builder.environment.put("PYTHONUNBUFFERED", "YES")
        Some(builder.start())
      } catch {
        case failed: IOException =>
          failure = Some(failed.getMessage)
          None
      }
    for (process <- process) {
      val errors = thread("errors")(read(process.getErrorStream) { line =>
        if (line.nonEmpty) lastError = line
        Python.log.info(line)
      })
      thread("replies") {
        try read(process.getInputStream)(received)
        catch { case failed: RuntimeException => end(s"$python sent something other than a frame: $failed") }
        finally {
          kill()
          val code = process.waitFor()
          errors.join(1000)
          end(if (lastError.isEmpty) s"$python ended with code $code" else s"$python ended with code $code: $lastError")
        }
      }
      thread("requests") {
        val out = process.getOutputStream
        try
          Iterator.continually(lines.take()).takeWhile(_ != Last).foreach { line =>
            out.write(line.getBytes(UTF_8))
            out.flush()
          }
        catch { case _: IOException => kill() }
        finally Utils.tryLogNonFatalError(out.close()) // if a script started Python, Python ends now
      }
    }

    def isRunning: Boolean = failure.isEmpty
    def hasAnswered: Boolean = answers
    def isStuck: Boolean = stuck
    def reason: String = failure.getOrElse("")

    def ask(request: String): String = {
      val number = numbers.incrementAndGet()
      val reply = new CompletableFuture[String]
      waiting.put(number, reply)
      try {
        send(number, "ask", request)
        if (!isRunning) throw new Ended // before it could be told
        reply.get(Patience, TimeUnit.SECONDS)
      } catch {
        case _: TimeoutException =>
          stuck = true
          end(s"$python took more than $Patience seconds for a reply")
          throw new Ended
        case failed: ExecutionException => throw failed.getCause
      } finally waiting.remove(number)
    }

    def tell(about: String, text: String): Unit = send(0, "tell", Messages.encoded(Seq(about, text)))

    private def send(number: Long, what: String, json: String): Unit = lines.put(s"$number $what $json\n")

    private def received(line: String): Unit = {
      val frame = line.split(" ", 3)
      val json = frame(2)
      def reply = Option(waiting.get(frame(0).toLong))
      frame(1) match {
        case "ready" =>
          val digest = Messages.decoded[String](json)
          if (digest != Resources.constants.digest)
            end(s"$python has another version of delta_variant than the JAR, which is of ${Resources.constants.version}")
        case "reply" =>
          answers = true
          reply.foreach(_.complete(json))
        case "error" =>
          answers = true
          reply.foreach(_.completeExceptionally(new Failed(Messages.decoded[String](json))))
        case "log" =>
          val record = Messages.decoded[Array[String]](json)
          if (record.head == "INFO") Python.log.info(record.last) else Python.log.warn(record.last)
      }
    }

    /** The process will answer no more. */
    private def end(why: String): Unit = {
      if (failure.isEmpty) failure = Some(why)
      waiting.values.asScala.foreach(_.completeExceptionally(new Ended))
      kill()
      lines.put(Last)
    }

    /** Ends the process by its handle: Process.destroyForcibly would close the stream with the last error. */
    private def kill(): Unit = process.foreach(_.toHandle.destroyForcibly())

    private def read(stream: InputStream)(take: String => Unit): Unit = {
      val reader = new BufferedReader(new InputStreamReader(stream, UTF_8))
      try Iterator.continually(reader.readLine()).takeWhile(_ != null).foreach(take)
      catch { case _: IOException => () }
    }

    private def thread(name: String)(body: => Unit): Thread = {
      val thread = new Thread(() => body, s"delta_variant Python $name")
      thread.setDaemon(true)
      thread.start()
      thread
    }
  }
}

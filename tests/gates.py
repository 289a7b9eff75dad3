"""Two writers at once: the first is held just before its commit until the other is done."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import delta.exceptions  # noqa: F401  # Delta's errors are exceptions of Python's from here on

from delta_variant import jvm
from delta_variant.errors import ConflictError
from tests.logs import actions

GATE = """
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.delta.*;

public class Gate implements TransactionExecutionObserver {
  private final CountDownLatch reached = new CountDownLatch(1);
  private final CountDownLatch open = new CountDownLatch(1);
  private scala.Option next = scala.Option.empty();
  private TransactionExecutionObserver before;

  public void beginDoCommit() {
    reached.countDown();
    try {
      open.await(5, TimeUnit.MINUTES);
    } catch (InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }
  public boolean reached() throws InterruptedException { return reached.await(5, TimeUnit.MINUTES); }
  public void open() { reached.countDown(); open.countDown(); }
  public void install() {
    before = (TransactionExecutionObserver) TransactionExecutionObserver$.MODULE$.getObserver();
    TransactionExecutionObserver$.MODULE$.setObserver(this);
  }
  public void uninstall() { TransactionExecutionObserver$.MODULE$.setObserver(before); }

  public TransactionExecutionObserver createChild() { return this; }
  public OptimisticTransaction startingTransaction(scala.Function0 f) { return before.startingTransaction(f); }
  public Object preparingCommit(scala.Function0 f) { return f.apply(); }
  public void beginBackfill() {}
  public void beginPostCommit() {}
  public void transactionCommitted() {}
  public void transactionAborted() {}
  public scala.Option nextObserver() { return next; }
  public void nextObserver_$eq(scala.Option observer) { next = observer; }
}
"""


def gates(spark):
    """Makes gates. Compiles their class."""
    jvm.companion(spark, "Shared").observe()  # else the first write does so, and takes the observer of a gate away
    compiler = jvm.static(spark, "org.codehaus.janino.SimpleCompiler")()
    compiler.setParentClassLoader(spark._jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(GATE)
    return lambda: compiler.getClassLoader().loadClass("Gate").newInstance()


def both(spark, gate, path: str, held, other) -> tuple[str, str]:
    """How two writers end, the first of which is held before its commit until the second is done: `done`, or Delta's error."""
    barrier = gate()

    def hold():
        barrier.install()
        try:
            return outcome(held)
        finally:
            barrier.uninstall()
            barrier.open()

    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(hold)
        try:
            assert barrier.reached()
            second = outcome(other)
        finally:
            barrier.open()
        return first.result(), second


def outcome(action) -> str:
    try:
        action()
    except Exception as error:  # noqa: BLE001  # of either package
        return type(error.__cause__ if isinstance(error, ConflictError) else error).__name__
    return "done"


def commits(path: str) -> list[tuple]:
    """What the log says of each commit that could change how it conflicts."""
    return [
        tuple(info.get(key) for key in ("operation", "readVersion", "isolationLevel", "isBlindAppend"))
        for info in actions(path, "commitInfo")
    ]

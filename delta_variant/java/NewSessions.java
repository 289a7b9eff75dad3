package delta_variant;

import java.lang.ref.WeakReference;
import java.util.Iterator;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.function.BiConsumer;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.classic.SparkSession;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * What the sessions get that are made from a session by newSession(): the optimizer rules, and settings. The Connect server and
 * the Thrift server in the driver make a session for each of their clients in this way.
 *
 * New sessions share the SparkSessionExtensions of the session that they are made from, and each builds its analyzer from them
 * at its first query. Extensions take no rule for the place in the optimizer where ours belong (after Delta has prepared its
 * scans), but they take a check of analyzed plans. Before a query is optimized, the check adds the rules to its session, once.
 * Janino compiles this file: no generics, no lambdas.
 */
public class NewSessions {
  private static final Map HOOKS = new WeakHashMap();  // SparkSessionExtensions -> Hook: they take one, and never give it back

  private final Seq rules;
  private final Map settings;
  private final Map defaults;
  private final BiConsumer tell;

  /** settings: what new sessions get. defaults: what they get if they do not have it. tell: is told failures. */
  public NewSessions(Seq rules, Map settings, Map defaults, BiConsumer tell) {
    this.rules = rules;
    this.settings = settings;
    this.defaults = defaults;
    this.tell = tell;
  }

  /**
   * From now on, sessions that are made from this one get the rules and settings; without rules nothing, if this session was the
   * last to offer some.
   */
  public void offer(SparkSession session) {
    synchronized (HOOKS) {
      SparkSessionExtensions extensions = session.extensions();
      Hook hook = (Hook) HOOKS.get(extensions);
      if (rules.isEmpty() && (hook == null || hook.from.get() != session)) return;
      boolean first = hook == null;
      if (first) HOOKS.put(extensions, hook = new Hook());
      hook.from = new WeakReference(session);
      hook.now = this;
      if (first) extensions.injectCheckRule(hook);
    }
  }

  private void install(SparkSession session) {
    Seq there = session.experimental().extraOptimizations();
    for (int i = 0; i < there.size(); i++) {
      if (there.apply(i) == rules.apply(0)) return;  // a clone of a session that has them
    }
    put(session, settings, true);
    put(session, defaults, false);
    session.experimental().extraOptimizations_$eq((Seq) there.appendedAll(rules));
  }

  private static void put(SparkSession session, Map settings, boolean replace) {
    for (Iterator entries = settings.entrySet().iterator(); entries.hasNext();) {
      Map.Entry entry = (Map.Entry) entries.next();
      String key = (String) entry.getKey();
      if (replace || session.conf().get(key, null) == null) session.conf().set(key, (String) entry.getValue());
    }
  }

  /** Session -> check. */
  private static class Hook extends AbstractFunction1 {
    WeakReference from;  // a session
    volatile NewSessions now;

    public Object apply(Object session) {
      return new Check(this, (SparkSession) session);
    }
  }

  /** Plan -> nothing. */
  private static class Check extends AbstractFunction1 {
    private final Hook hook;
    private final SparkSession session;
    private boolean done;

    Check(Hook hook, SparkSession session) {
      this.hook = hook;
      this.session = session;
    }

    public synchronized Object apply(Object plan) {
      NewSessions now = hook.now;
      if (done || now.rules.isEmpty()) return BoxedUnit.UNIT;
      done = true;
      try {
        now.install(session);
      } catch (RuntimeException e) {  // the session's queries run without the rules
        now.tell.accept("skipping", "a new session could not get the rules: " + e);
      }
      return BoxedUnit.UNIT;
    }
  }
}

package delta_variant;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.CommitInfo;
import org.apache.spark.sql.delta.actions.RemoveFile;
import org.apache.spark.sql.delta.actions.SetTransaction;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Seq;

/**
 * The commits that took source files, by the log: in which data files are the rows of a source file?
 *
 * A load is a commit with transaction identifiers of `ingest` or `convert`. If it appends, or replaces whole data files, its data
 * files have the rows of the files that it took, and no others. This holds until a later commit puts a deletion vector on a data
 * file, or removes it and adds other files, which may have its rows. A commit that removes data files and adds none, and RESTORE,
 * which adds files that were there before, move no rows. If RESTORE brings back files of which the log does not say whose rows they
 * have, they may have rows of every earlier load. Janino compiles this file: no generics, no lambdas.
 */
public class Loads {
  private static final String GONE = "gone: ";  // and what removed the data file with all of its rows

  private static final class Load {
    long version;
    boolean reloads = false;  // whether it removed the old rows of its files
    String fault = null;  // why its data files may have other rows
    final Map identifiers = new HashMap();
    final Set files = new HashSet();
  }

  private final List loads = new ArrayList();
  private final Map states = new HashMap();  // data files of loads -> null if whole, GONE…, or what moved or changed rows
  private final Set moved = new HashSet();  // those whose rows another commit has put into other files
  private long oldest = -1;
  private long restored = -1;  // the version of the last RESTORE
  private long broughtBack = -1;  // and of the last that added data files from before the oldest version

  /** Reads the log up to a version. prefix: with which the identifiers of an operation begin. */
  public Loads(DeltaLog log, long version, String prefix, Option catalogTable) {
    for (scala.collection.Iterator i = log.getChanges(0L, catalogTable, false); i.hasNext(); ) {
      Tuple2 commit = (Tuple2) i.next();
      long number = ((Long) commit._1()).longValue();
      if (number > version) break;
      if (oldest < 0) oldest = number;
      read(number, (Seq) commit._2(), prefix);
    }
  }

  private void read(long version, Seq actions, String prefix) {
    Load load = new Load();
    load.version = version;
    String operation = "a commit without CommitInfo";
    String mode = "", predicate = "";
    Map adds = new HashMap();
    Set removes = new HashSet();
    for (scala.collection.Iterator i = actions.iterator(); i.hasNext(); ) {
      Object action = i.next();
      if (action instanceof AddFile) adds.put(((AddFile) action).path(), action);
      else if (action instanceof RemoveFile) removes.add(((RemoveFile) action).path());
      else if (action instanceof SetTransaction) {
        SetTransaction identifier = (SetTransaction) action;
        if (identifier.appId().startsWith(prefix)) load.identifiers.put(identifier.appId(), Long.valueOf(identifier.version()));
      } else if (action instanceof CommitInfo) {
        CommitInfo info = (CommitInfo) action;
        operation = info.operation();
        if (info.operationParameters() != null) {
          mode = text(info, "mode");
          predicate = text(info, "predicate");
        }
      }
    }
    boolean whole = operation.equals("WRITE") && predicate.startsWith(Replace.WHOLE);
    boolean restores = operation.equals("RESTORE");
    if (restores) restored = version;
    boolean moves = false;
    for (Iterator i = adds.keySet().iterator(); i.hasNext(); ) moves |= !removes.contains(i.next());
    moves &= !whole && !restores;
    String told = operation + " in version " + version;
    for (Iterator i = removes.iterator(); i.hasNext(); ) {
      String path = (String) i.next();
      if (states.containsKey(path)) states.put(path, moves ? told : GONE + told);
      if (moves && states.containsKey(path)) moved.add(path);
    }
    for (Iterator i = adds.entrySet().iterator(); i.hasNext(); ) {
      Map.Entry added = (Map.Entry) i.next();
      String path = (String) added.getKey();
      boolean lacksRows = ((AddFile) added.getValue()).deletionVector() != null;
      if (!load.identifiers.isEmpty()) load.files.add(path);
      else if (restores && oldest > 0 && !states.containsKey(path)) broughtBack = version;
      if (states.containsKey(path) || !load.identifiers.isEmpty()) states.put(path, lacksRows ? told : null);
    }
    if (restores) {
      for (Iterator i = moved.iterator(); i.hasNext(); ) {
        Object path = i.next();
        if (isGone((String) states.get(path))) states.put(path, told);  // the files with its rows may be there again
      }
    }
    if (load.identifiers.isEmpty()) return;
    boolean appends = operation.startsWith("CREATE TABLE") || (operation.equals("WRITE") && mode.equals("Append"));
    if (!whole && (!appends || !removes.isEmpty())) load.fault = told;
    load.reloads = operation.equals("WRITE") && mode.equals("Overwrite");
    loads.add(load);
  }

  private static boolean isGone(String state) {
    return state != null && state.startsWith(GONE);
  }

  private static String text(CommitInfo info, String key) {
    Option found = info.operationParameters().get(key);
    if (found.isEmpty()) return "";
    String text = String.valueOf(found.get());
    return text.startsWith("\"") && text.endsWith("\"") ? text.substring(1, text.length() - 1) : text;
  }

  /**
   * Whether all rows of a file in any version of the table come from one load: the only one, by a log that is whole, or the last, if
   * that removed the old rows and no RESTORE came after it.
   */
  public boolean isOfOne(String identifier) {
    int count = 0;
    Load last = null;
    for (int l = 0; l < loads.size(); l++) {
      Load load = (Load) loads.get(l);
      if (!load.identifiers.containsKey(identifier)) continue;
      if (!load.reloads) count++;
      last = load;
    }
    return last != null && (oldest == 0 && count == 1 || last.reloads && last.version > restored);
  }

  /**
   * The loads whose data files have rows of source files, and those that took other files of these loads, as JSON: `loads`, each
   * with `identifiers` (versions by application) and `files` (paths of data files), or with the `fault` by which it is not known
   * which data files have its rows; `missing`, those that no commit of the log has; and `oldest`, the first version that was read.
   */
  public String of(List identifiers) {
    ObjectNode found = new ObjectMapper().createObjectNode();
    ArrayNode all = found.putArray("loads");
    ArrayNode missing = found.putArray("missing");
    found.put("oldest", oldest);
    List wanted = new ArrayList(identifiers);
    Set seen = new HashSet(identifiers);
    Set taken = new HashSet();
    for (int w = 0; w < wanted.size(); w++) {
      boolean known = false;
      for (int l = 0; l < loads.size(); l++) {
        Load load = (Load) loads.get(l);
        if (!load.identifiers.containsKey(wanted.get(w))) continue;
        known = true;
        if (taken.contains(load)) continue;
        taken.add(load);
        int gone = 0;
        String fault = load.fault;
        for (Iterator i = load.files.iterator(); i.hasNext(); ) {
          String state = (String) states.get(i.next());
          if (isGone(state)) gone++;
          if (state != null && fault == null) fault = isGone(state) ? state.substring(GONE.length()) : state;
        }
        boolean isBack = load.version < broughtBack;  // rows that it replaced, or others of its files, may be
        if (gone == load.files.size() && !isBack) continue;
        if (isBack) {
          fault = "RESTORE in version " + broughtBack + " has brought back data files from before version " + oldest
              + ", with which the log begins";
        } else if (fault != null) fault += " has moved, changed or deleted rows of the same data files";
        ObjectNode one = all.addObject().put("version", load.version).put("fault", fault);
        ObjectNode versions = one.putObject("identifiers");
        ArrayNode files = one.putArray("files");
        for (Iterator i = load.files.iterator(); i.hasNext(); ) files.add((String) i.next());
        for (Iterator i = load.identifiers.entrySet().iterator(); i.hasNext(); ) {
          Map.Entry identifier = (Map.Entry) i.next();
          versions.put((String) identifier.getKey(), (Long) identifier.getValue());
          if (fault == null && seen.add(identifier.getKey())) wanted.add(identifier.getKey());
        }
      }
      if (!known) missing.add((String) wanted.get(w));
    }
    return found.toString();
  }
}

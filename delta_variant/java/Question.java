package delta_variant;

import java.util.concurrent.atomic.AtomicLong;

/**
 * Calls from a rule to Python, in pieces that are small enough for py4j to write each to its socket at once.
 *
 * py4j's writer has a buffer of 8 KiB, and its socket waits for the other side's acknowledgment before it sends the rest,
 * which takes 40 ms for every longer text. Janino compiles this file: no generics, no lambdas.
 */
public class Question {
  private static final int PIECE = 2500;  // characters, of up to three bytes
  private static final AtomicLong NUMBERS = new AtomicLong();

  /** The reply of `python` (delta_variant/optimizer.py, _Decide) to a request. */
  public static String ask(java.util.function.UnaryOperator python, String request) {
    long number = NUMBERS.incrementAndGet();
    int start = 0;
    for (; request.length() - start > PIECE; start += PIECE) {
      python.apply(number + " more " + request.substring(start, start + PIECE));
    }
    return (String) python.apply(number + " last " + request.substring(start));
  }
}

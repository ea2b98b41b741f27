package postroad.bench;

import java.util.BitSet;

/** What must arrive at one queue, or at one subscriber of a topic, and what did. */
final class Ledger {
  final String destination;
  private final BitSet[] seen;
  private long received;
  private long doubled;

  Ledger(String destination, int producers) {
    this.destination = destination;
    seen = new BitSet[producers];
    for (int p = 0; p < producers; p++) {
      seen[p] = new BitSet();
    }
  }

  /** False if no producer of this number exists. */
  synchronized boolean enter(int producer, long sequence) {
    if (producer >= seen.length || Integer.MAX_VALUE <= sequence) {
      return false;
    }
    if (seen[producer].get((int) sequence)) {
      doubled++;
    } else {
      seen[producer].set((int) sequence);
      received++;
    }
    return true;
  }

  synchronized long received() {
    return received;
  }

  synchronized long doubled() {
    return doubled;
  }

  /** Confirmed messages of this producer that did not come: the first `confirmed` numbers were confirmed. */
  synchronized long lost(int producer, long confirmed) {
    return confirmed - seen[producer].get(0, (int) confirmed).cardinality();
  }

  /** Messages of a producer that sent elsewhere, or beyond what it can have sent. */
  synchronized long strange(int producer, long possible) {
    return seen[producer].cardinality() - seen[producer].get(0, (int) possible).cardinality();
  }
}

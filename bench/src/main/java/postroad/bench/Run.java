package postroad.bench;

import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import org.HdrHistogram.Histogram;

/** What all threads of a run share: the measured window, the signals to stop, and the first errors. */
final class Run {
  /** Latencies are kept in microseconds up to ten minutes, to three digits. */
  private static final long LATENCY_MICROS_MAX = 600_000_000L;

  final Options options;
  volatile long windowFrom = Long.MAX_VALUE;
  volatile long windowTo = Long.MAX_VALUE;
  volatile boolean stopPublishing;
  volatile boolean stopReceiving;
  final LongAdder wrongBodies = new LongAdder();
  final LongAdder reordered = new LongAdder();
  final LongAdder redelivered = new LongAdder();
  final AtomicLong errors = new AtomicLong();
  final Queue<String> firstErrors = new ConcurrentLinkedQueue<>();

  Run(Options options) {
    this.options = options;
  }

  boolean inWindow(long nanos) {
    return windowFrom <= nanos && nanos < windowTo;
  }

  void error(String where, Throwable error) {
    if (errors.incrementAndGet() <= 5) {
      firstErrors.add(where + ": " + error);
    }
  }

  static Histogram latencies() {
    return new Histogram(LATENCY_MICROS_MAX, 3);
  }

  static void record(Histogram histogram, long nanos) {
    histogram.recordValue(Math.min(Math.max(nanos / 1000, 0), LATENCY_MICROS_MAX));
  }
}

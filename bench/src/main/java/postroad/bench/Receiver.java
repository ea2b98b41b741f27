package postroad.bench;

import java.util.Arrays;
import org.HdrHistogram.Histogram;

/** One consumer on a connection of its own: enters what it gets in a ledger, and checks body and order. */
final class Receiver implements Runnable {
  private static final long POLL_MILLIS = 200;

  final Histogram latencies = Run.latencies();
  private final Run run;
  private final Ledger ledger;
  private final Protocol.Source source;
  /** Per producer the highest sequence number that this consumer got: it must rise. */
  private final long[] highest;
  private volatile long receivedInWindow;

  Receiver(Run run, Protocol protocol, Ledger ledger) throws Exception {
    this.run = run;
    this.ledger = ledger;
    highest = new long[run.options.producers()];
    Arrays.fill(highest, -1);
    source = protocol.source(ledger.destination);
  }

  @Override
  public void run() {
    try {
      while (!run.stopReceiving) {
        source.receive(POLL_MILLIS, this::take);
      }
    } catch (Exception error) {
      if (!run.stopReceiving) {
        run.error("consumer of " + ledger.destination, error);
      }
    }
  }

  private void take(Protocol.Received message) {
    Body.Read read = message.body() == null ? null : Body.read(message.body(), run.options.runId(), run.options.bodyBytes());
    if (read == null || !ledger.enter(read.producer(), read.sequence())) {
      run.wrongBodies.increment();
      return;
    }
    if (message.redelivered()) {
      run.redelivered.increment();
    } else if (read.sequence() <= highest[read.producer()]) {
      run.reordered.increment();
    }
    highest[read.producer()] = Math.max(highest[read.producer()], read.sequence());
    if (run.inWindow(message.nanos())) {
      receivedInWindow++;
      Run.record(latencies, message.nanos() - read.sentNanos());
    }
  }

  long receivedInWindow() {
    return receivedInWindow;
  }

  void close() {
    try {
      source.close();
    } catch (Exception error) {
      // The run is over and judged; a connection that does not close well changes nothing.
    }
  }
}

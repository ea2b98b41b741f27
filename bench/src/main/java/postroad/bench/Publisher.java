package postroad.bench;

import org.HdrHistogram.Histogram;

/**
 * One producer on a connection of its own: sends messages one after the other, each confirmed if it is durable.
 *
 * <p>If sends have their times, one that is late counts from when it was due: a broker that pauses makes all of those late that
 * were due meanwhile, as it would for users who do not wait for each other.
 */
final class Publisher implements Runnable {
  final Histogram latencies = Run.latencies();
  final String destination;
  private final Run run;
  private final int number;
  private final Protocol.Sender sender;
  private volatile long confirmed;
  private volatile long attempted;
  private volatile long confirmedInWindow;

  Publisher(Run run, Protocol protocol, int number) throws Exception {
    this.run = run;
    this.number = number;
    destination = run.options.destination(number);
    sender = protocol.sender(destination);
  }

  @Override
  public void run() {
    double interval = run.options.sendIntervalNanos();
    // Producers begin spread over one interval.
    long begin = System.nanoTime() + (long) (interval * number / run.options.producers());
    try {
      for (long sent = 0; !run.stopPublishing; sent++) {
        long due = 0 < interval ? begin + (long) (interval * sent) : System.nanoTime();
        Load.sleepUntil(due);
        send(due);
      }
    } catch (Exception error) {
      // After the end of the run a blocked send is broken off; its outcome is unknown, which is no error.
      if (!run.stopPublishing) {
        run.error("producer " + number, error);
      }
    }
  }

  private void send(long called) throws Exception {
    byte[] body = Body.write(run.options.runId(), number, confirmed, called, run.options.bodyBytes());
    attempted = confirmed + 1;
    sender.send(body);
    long replied = System.nanoTime();
    confirmed = attempted;
    if (run.inWindow(replied)) {
      confirmedInWindow++;
      Run.record(latencies, replied - called);
    }
  }

  /** Messages whose send returned. */
  long confirmed() {
    return confirmed;
  }

  /** Messages whose send was at least begun: confirmed ones, and one in doubt at most. */
  long attempted() {
    return attempted;
  }

  long confirmedInWindow() {
    return confirmedInWindow;
  }

  void close() {
    try {
      sender.close();
    } catch (Exception error) {
      // The run is over and judged; a connection that does not close well changes nothing.
    }
  }
}

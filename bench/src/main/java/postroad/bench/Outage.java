package postroad.bench;

import java.io.IOException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;

/**
 * How long no send is confirmed while a broker fails: one producer of durable messages, which reconnects by itself.
 *
 * <p>Writes "sending" to standard output once sends are confirmed. Then it reads a line: the fault has happened. It answers with the longest
 * time between two confirmed sends since a moment before, in milliseconds.
 */
public final class Outage {
  private static final int SENDS_BEFORE = 200;
  private static final long SETTLED_MILLIS = 3_000;
  private static final long RETURNS_WITHIN_MILLIS = 60_000;

  private static final AtomicLong SENDS = new AtomicLong();
  private static final AtomicLong LAST_NANOS = new AtomicLong();
  private static final AtomicLong LONGEST_NANOS = new AtomicLong();
  private static final AtomicBoolean MEASURES = new AtomicBoolean();
  private static final AtomicReference<Exception> FAILURE = new AtomicReference<>();

  private Outage() {}

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 2) {
      throw new IllegalArgumentException("expected a URL and the name of a queue");
    }
    Load.start(() -> send(arguments[0], arguments[1]));
    await(SENDS_BEFORE);
    MEASURES.set(true);
    System.out.println("sending");
    System.out.flush();
    while (System.in.read() != '\n') {
      // The line has no content.
    }
    long after = SENDS.get();
    await(after + 1);
    Thread.sleep(SETTLED_MILLIS);
    System.out.println(LONGEST_NANOS.get() / 1e6);
    System.out.flush();
    System.exit(0);
  }

  private static void await(long sends) throws Exception {
    long end = System.currentTimeMillis() + RETURNS_WITHIN_MILLIS;
    while (SENDS.get() < sends) {
      if (FAILURE.get() != null) {
        throw FAILURE.get();
      }
      if (end < System.currentTimeMillis()) {
        throw new IOException("no send was confirmed within " + RETURNS_WITHIN_MILLIS + " ms");
      }
      Thread.sleep(1);
    }
  }

  private static void send(String url, String queue) {
    try (Protocol.Sender sender = Protocol.of(url, false, true).sender(queue)) {
      byte[] body = new byte[1024];
      while (true) {
        sender.send(body);
        long now = System.nanoTime();
        long gap = now - LAST_NANOS.getAndSet(now);
        if (MEASURES.get()) {
          LONGEST_NANOS.accumulateAndGet(gap, Math::max);
        }
        SENDS.incrementAndGet();
      }
    } catch (Exception failed) {
      FAILURE.set(failed);
    }
  }
}

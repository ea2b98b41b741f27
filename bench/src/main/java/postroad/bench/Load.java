package postroad.bench;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import org.HdrHistogram.Histogram;

/**
 * One run of load against one broker: warm-up, measured window, drain, check, one line of JSON on standard output.
 *
 * <p>Never here: anything that depends on which broker answers. Options are those of {@link Options}.
 */
public final class Load {
  private static final long JOIN_MILLIS_MAX = 30_000;

  private final Options options;
  private final Run run;
  private final Protocol protocol;
  private final List<Publisher> publishers = new ArrayList<>();
  private final List<Receiver> receivers = new ArrayList<>();
  private final List<Thread> publishing = new ArrayList<>();
  private final List<Thread> receiving = new ArrayList<>();
  private final List<Ledger> ledgers = new ArrayList<>();
  private final Map<String, Ledger> queues = new LinkedHashMap<>();

  private Load(Options options) {
    this.options = options;
    run = new Run(options);
    protocol = Protocol.of(options.url(), options.topic(), options.persistent());
  }

  public static void main(String[] arguments) throws Exception {
    Load load = new Load(Options.parse(arguments));
    Result result = load.measure();
    System.out.println(result);
    System.out.flush();
    load.close();
    System.exit(0);
  }

  private Result measure() throws Exception {
    // Consumers first: a topic keeps nothing for those who come later.
    attach(options.consumers());
    for (int p = 0; p < options.producers(); p++) {
      publishers.add(new Publisher(run, protocol, p));
    }
    long begin = System.nanoTime();
    run.windowFrom = begin + (long) (options.warmupSeconds() * 1e9);
    run.windowTo = run.windowFrom + (long) (options.durationSeconds() * 1e9);
    publishers.forEach(publisher -> publishing.add(start(publisher)));

    sleepUntil(run.windowFrom);
    Machine from = Machine.now(options);
    Pauses pauses = Pauses.watch();
    sleepUntil(run.windowTo);
    Machine used = Machine.now(options).since(from);
    long longestPauseMillis = pauses.longestMillis();
    int blocked = stopPublishing();

    Result result = new Result();
    if (receivers.isEmpty() && 0 < options.drainConsumers()) {
      long drainFrom = System.nanoTime();
      attach(options.drainConsumers() * options.destinations());
      long drained = drain();
      result.put("drained_per_s", drained / ((System.nanoTime() - drainFrom) / 1e9));
    } else {
      drain();
    }
    run.stopReceiving = true;
    join(receiving);
    rates(result, used);
    result.put("client_pause_max_ms", longestPauseMillis);
    verdict(result, blocked);
    return result;
  }

  private void attach(int count) throws Exception {
    for (int c = 0; c < count; c++) {
      String destination = options.destination(c);
      Ledger ledger = options.topic() ? null : queues.get(destination);
      if (ledger == null) {
        ledger = new Ledger(destination, options.producers());
        ledgers.add(ledger);
        queues.put(destination, ledger);
      }
      Receiver receiver = new Receiver(run, protocol, ledger);
      receivers.add(receiver);
      receiving.add(start(receiver));
    }
  }

  /** Lets every send return; gives the number of producers whose send did not. */
  private int stopPublishing() throws InterruptedException {
    run.stopPublishing = true;
    int blocked = join(publishing);
    if (0 < blocked) {
      publishers.forEach(Publisher::close);
      join(publishing);
    }
    return blocked;
  }

  /** Waits until all confirmed messages came, or nothing comes any more; gives the number of messages received. */
  private long drain() throws InterruptedException {
    long now = System.nanoTime();
    long end = now + options.drainSecondsMax() * 1_000_000_000L;
    long moved = now;
    long received = received();
    while (0 < missing() && now < end && now - moved < options.idleSecondsMax() * 1_000_000_000L) {
      Thread.sleep(20);
      now = System.nanoTime();
      if (received() != received) {
        received = received();
        moved = now;
      }
    }
    Thread.sleep(300); // a doubled message may come late
    return received();
  }

  private long received() {
    return ledgers.stream().mapToLong(Ledger::received).sum();
  }

  private long missing() {
    long missing = 0;
    for (Ledger ledger : ledgers) {
      missing -= ledger.received();
      for (Publisher publisher : publishers) {
        missing += publisher.destination.equals(ledger.destination) ? publisher.confirmed() : 0;
      }
    }
    return missing;
  }

  private void rates(Result result, Machine used) {
    Histogram publish = Run.latencies();
    Histogram endToEnd = Run.latencies();
    publishers.forEach(publisher -> publish.add(publisher.latencies));
    receivers.forEach(receiver -> endToEnd.add(receiver.latencies));
    long published = publishers.stream().mapToLong(Publisher::confirmedInWindow).sum();
    long delivered = receivers.stream().mapToLong(Receiver::receivedInWindow).sum();
    result.put("published_per_s", published / options.durationSeconds());
    result.put("delivered_per_s", delivered / options.durationSeconds());
    result.latency("publish", publish);
    result.latency("end_to_end", endToEnd);
    result.put("server_cpu_us_per_message", used.serverSeconds() * 1e6 / published);
    result.put("server_cores", used.serverSeconds() / options.durationSeconds());
    result.put("client_cores", used.clientSeconds() / options.durationSeconds());
    result.put("other_cores", used.otherSeconds() / options.durationSeconds());
  }

  private void verdict(Result result, int blocked) {
    long lost = 0;
    long strange = 0;
    for (Ledger ledger : ledgers) {
      for (int p = 0; p < publishers.size(); p++) {
        Publisher publisher = publishers.get(p);
        boolean sendsHere = publisher.destination.equals(ledger.destination);
        lost += sendsHere ? ledger.lost(p, publisher.confirmed()) : 0;
        strange += ledger.strange(p, sendsHere ? publisher.attempted() : 0);
      }
    }
    result.put("confirmed", publishers.stream().mapToLong(Publisher::confirmed).sum());
    result.put("received", received());
    result.put("verified", !ledgers.isEmpty());
    result.put("lost", lost);
    result.put("doubled", ledgers.stream().mapToLong(Ledger::doubled).sum());
    result.put("reordered", run.reordered.sum());
    result.put("wrong_body", run.wrongBodies.sum() + strange);
    result.put("redelivered", run.redelivered.sum());
    result.put("in_doubt", publishers.stream().mapToLong(p -> p.attempted() - p.confirmed()).sum());
    result.put("blocked_producers", blocked);
    result.put("errors", run.errors.get());
    result.put("first_errors", String.join(" | ", run.firstErrors));
  }

  private void close() throws InterruptedException {
    Thread closing = start(() -> {
      publishers.forEach(Publisher::close);
      receivers.forEach(Receiver::close);
    });
    closing.join(JOIN_MILLIS_MAX);
  }

  /** A thread that keeps no process alive. */
  static Thread start(Runnable work) {
    Thread thread = new Thread(work);
    thread.setDaemon(true);
    thread.start();
    return thread;
  }

  /** Joins all threads within one common time; gives the number of those that still run. */
  private static int join(List<Thread> threads) throws InterruptedException {
    long end = System.currentTimeMillis() + JOIN_MILLIS_MAX;
    int running = 0;
    for (Thread thread : threads) {
      thread.join(Math.max(1, end - System.currentTimeMillis()));
      running += thread.isAlive() ? 1 : 0;
    }
    return running;
  }

  static void sleepUntil(long nanos) {
    for (long left; 0 < (left = nanos - System.nanoTime()); ) {
      LockSupport.parkNanos(left);
    }
  }
}

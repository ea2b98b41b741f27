package postroad.bench;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.activemq.ActiveMQConnectionFactory;

/**
 * A deep backlog in one queue, step by step as standard input says: {@code fill} sends all messages, {@code first} waits for a broker and the
 * first message from it, {@code drain} takes the rest and checks everything. Each step answers with one line of JSON.
 */
public final class Depth {
  private static final int BATCH = 500;
  private static final long RETRY_MILLIS = 5;
  private static final long IDLE_SECONDS_MAX = 60;

  private final Options options;
  private final Run run;
  private final ConnectionFactory factory;
  private final Ledger ledger;
  private final List<Receiver> receivers = new ArrayList<>();

  private Depth(Options options) {
    this.options = options;
    run = new Run(options);
    factory = new ActiveMQConnectionFactory(options.url());
    ledger = new Ledger(options.name(), options.producers());
  }

  public static void main(String[] arguments) throws Exception {
    Depth depth = new Depth(Options.parse(arguments));
    var steps = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String step; (step = steps.readLine()) != null; ) {
      Result result = switch (step) {
        case "fill" -> depth.fill();
        case "first" -> depth.first();
        case "drain" -> depth.drain();
        default -> throw new IllegalArgumentException("no step " + step + "; known: fill, first, drain");
      };
      System.out.println(result);
      System.out.flush();
    }
    System.exit(0);
  }

  /** How many messages this producer sends. */
  private long share(int producer) {
    return options.messages() / options.producers() + (producer < options.messages() % options.producers() ? 1 : 0);
  }

  private Result fill() throws Exception {
    long begin = System.nanoTime();
    AtomicReference<Exception> failure = new AtomicReference<>();
    List<Thread> threads = new ArrayList<>();
    for (int p = 0; p < options.producers(); p++) {
      int producer = p;
      threads.add(Load.start(() -> {
        try {
          send(producer);
        } catch (JMSException | RuntimeException error) {
          failure.compareAndSet(null, error);
        }
      }));
    }
    for (Thread thread : threads) {
      thread.join();
    }
    if (failure.get() != null) {
      throw failure.get();
    }
    Result result = new Result();
    result.put("filled_per_s", options.messages() / seconds(begin));
    return result;
  }

  private void send(int producer) throws JMSException {
    try (Connection connection = factory.createConnection()) {
      Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
      MessageProducer sender = session.createProducer(session.createQueue(options.name()));
      sender.setDeliveryMode(DeliveryMode.PERSISTENT);
      long count = share(producer);
      for (long sequence = 0; sequence < count; sequence++) {
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(Body.write(options.runId(), producer, sequence, System.nanoTime(), options.bodyBytes()));
        sender.send(message);
        if (sequence % BATCH == BATCH - 1 || sequence == count - 1) {
          session.commit();
        }
      }
    }
  }

  private Result first() throws Exception {
    while (receivers.isEmpty()) {
      try {
        attach();
      } catch (JMSException notYet) {
        Thread.sleep(RETRY_MILLIS);
      }
    }
    while (ledger.received() == 0) {
      Thread.sleep(1);
    }
    Result result = new Result();
    result.put("at_ms", System.currentTimeMillis());
    return result;
  }

  private void attach() throws Exception {
    Receiver receiver = new Receiver(run, new Jms(options.url(), false, true), ledger);
    receivers.add(receiver);
    Load.start(receiver);
  }

  private Result drain() throws Exception {
    long begin = System.nanoTime();
    long before = ledger.received();
    while (receivers.size() < options.consumers()) {
      attach();
    }
    long received = before;
    long moved = begin;
    while (received < options.messages() && System.nanoTime() - moved < IDLE_SECONDS_MAX * 1_000_000_000L) {
      Thread.sleep(5);
      if (ledger.received() != received) {
        received = ledger.received();
        moved = System.nanoTime();
      }
    }
    double seconds = (moved - begin) / 1e9;
    run.stopReceiving = true;
    Result result = new Result();
    result.put("drained_per_s", (received - before) / seconds);
    long lost = 0;
    long strange = 0;
    for (int p = 0; p < options.producers(); p++) {
      lost += ledger.lost(p, share(p));
      strange += ledger.strange(p, share(p));
    }
    result.put("lost", lost);
    result.put("doubled", ledger.doubled());
    result.put("reordered", run.reordered.sum());
    result.put("wrong_body", run.wrongBodies.sum() + strange);
    return result;
  }

  private static double seconds(long sinceNanos) {
    return (System.nanoTime() - sinceNanos) / 1e9;
  }
}

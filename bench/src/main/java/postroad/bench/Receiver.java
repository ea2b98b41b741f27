package postroad.bench;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import java.util.Arrays;
import org.HdrHistogram.Histogram;

/** One consumer on a connection of its own: enters what it gets in a ledger, and checks body and order. */
final class Receiver implements Runnable {
  private static final long POLL_MILLIS = 200;

  final Histogram latencies = Run.latencies();
  private final Run run;
  private final Ledger ledger;
  private final Connection connection;
  private final MessageConsumer consumer;
  /** Per producer the highest sequence number that this consumer got: it must rise. */
  private final long[] highest;
  private volatile long receivedInWindow;

  Receiver(Run run, ConnectionFactory factory, Ledger ledger) throws JMSException {
    this.run = run;
    this.ledger = ledger;
    highest = new long[run.options.producers()];
    Arrays.fill(highest, -1);
    connection = factory.createConnection();
    Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    Destination destination = run.options.topic()
        ? session.createTopic(ledger.destination)
        : session.createQueue(ledger.destination);
    consumer = session.createConsumer(destination);
    connection.start();
  }

  @Override
  public void run() {
    try {
      while (!run.stopReceiving) {
        Message message = consumer.receive(POLL_MILLIS);
        if (message != null) {
          take(message, System.nanoTime());
        }
      }
    } catch (JMSException | RuntimeException error) {
      if (!run.stopReceiving) {
        run.error("consumer of " + ledger.destination, error);
      }
    }
  }

  private void take(Message message, long now) throws JMSException {
    Body.Read read = message instanceof BytesMessage bytes ? read(bytes) : null;
    if (read == null || !ledger.enter(read.producer(), read.sequence())) {
      run.wrongBodies.increment();
      return;
    }
    if (message.getJMSRedelivered()) {
      run.redelivered.increment();
    } else if (read.sequence() <= highest[read.producer()]) {
      run.reordered.increment();
    }
    highest[read.producer()] = Math.max(highest[read.producer()], read.sequence());
    if (run.inWindow(now)) {
      receivedInWindow++;
      Run.record(latencies, now - read.sentNanos());
    }
  }

  private Body.Read read(BytesMessage message) throws JMSException {
    byte[] bytes = new byte[(int) Math.min(message.getBodyLength(), run.options.bodyBytes() + 1L)];
    message.readBytes(bytes);
    return Body.read(bytes, run.options.runId(), run.options.bodyBytes());
  }

  long receivedInWindow() {
    return receivedInWindow;
  }

  void close() {
    try {
      connection.close();
    } catch (JMSException error) {
      // The run is over and judged; a connection that does not close well changes nothing.
    }
  }
}

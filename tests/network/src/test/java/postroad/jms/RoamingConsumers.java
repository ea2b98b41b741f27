package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;

import org.apache.activemq.ActiveMQConnectionFactory;

/**
 * Load on a network whose brokers and links fail: a producer at each broker, and consumers that take a few messages in a
 * transaction at one broker after another. A commit whose answer was lost may have happened or not: its messages may come once more.
 */
final class RoamingConsumers implements AutoCloseable {
    private static final String QUEUE = "work";
    private static final int PER_TRANSACTION = 5;

    private final List<Broker> brokers;
    private final int bodyBytes;
    private final AtomicBoolean stopsSending = new AtomicBoolean();
    private final AtomicBoolean stops = new AtomicBoolean();
    private final AtomicReference<Throwable> failed = new AtomicReference<>();
    private final AtomicInteger sent = new AtomicInteger();
    private final ConcurrentHashMap<Integer, Integer> times = new ConcurrentHashMap<>();
    private final Set<Integer> inDoubt = ConcurrentHashMap.newKeySet();
    private final List<Thread> producers = new ArrayList<>();
    private final List<Thread> consumers = new ArrayList<>();

    private interface Work {
        void run() throws Exception;
    }

    RoamingConsumers(List<Broker> brokers, int consumers, int bodyBytes) {
        this.brokers = brokers;
        this.bodyBytes = bodyBytes;
        for (Broker broker : brokers) {
            producers.add(thread(() -> produce(broker)));
        }
        for (int number = 0; number < consumers; number++) {
            Random random = new Random(number);
            this.consumers.add(thread(() -> consume(random)));
        }
    }

    private Thread thread(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Throwable error) {
                failed.compareAndSet(null, error);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    /** Sends a message every few milliseconds over a connection that outlives the broker. */
    private void produce(Broker broker) throws Exception {
        String url = "failover:(" + broker.url() + ")?initialReconnectDelay=20&useExponentialBackOff=false";
        try (Connection connection = new ActiveMQConnectionFactory(url).createConnection()) {
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createQueue(QUEUE));
            while (!stopsSending.get()) {
                BytesMessage message = session.createBytesMessage();
                message.writeBytes(new byte[bodyBytes]);
                message.setIntProperty("number", sent.getAndIncrement());
                producer.send(message);
                Thread.sleep(15);
            }
        }
    }

    private void consume(Random random) throws Exception {
        while (!stops.get()) {
            Broker broker = brokers.get(random.nextInt(brokers.size()));
            String url = broker.url() + "?jms.prefetchPolicy.queuePrefetch=20&jms.closeTimeout=1000";
            try (Connection connection = new ActiveMQConnectionFactory(url).createConnection()) {
                connection.start();
                take(connection, System.nanoTime() + (1000 + random.nextInt(2000)) * 1_000_000L);
            } catch (JMSException gone) {
                // The broker was killed.
                Thread.sleep(50);
            }
        }
    }

    private void take(Connection connection, long until) throws JMSException {
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageConsumer consumer = session.createConsumer(session.createQueue(QUEUE));
        Set<Integer> taken = new HashSet<>();
        while (System.nanoTime() < until && !stops.get()) {
            Message message = consumer.receive(100);
            if (message != null) {
                taken.add(message.getIntProperty("number"));
            }
            if (taken.size() == PER_TRANSACTION || message == null && !taken.isEmpty()) {
                commit(session, taken);
            }
        }
        if (!taken.isEmpty()) {
            commit(session, taken);
        }
    }

    private void commit(Session session, Set<Integer> taken) throws JMSException {
        try {
            session.commit();
        } catch (JMSException unknown) {
            inDoubt.addAll(taken);
            throw unknown;
        }
        taken.forEach(number -> times.merge(number, 1, Integer::sum));
        taken.clear();
    }

    boolean isFailed() {
        return failed.get() != null;
    }

    /** No more is sent; everything must have been consumed in this time, each message once but for so many. */
    void expectAllOnce(long patienceSeconds) throws Exception {
        stopsSending.set(true);
        for (Thread producer : producers) {
            producer.join(patienceSeconds * 1000);
        }
        long until = System.nanoTime() + patienceSeconds * 1_000_000_000L;
        while (!isFailed() && missing().size() > 0 && System.nanoTime() < until) {
            Thread.sleep(50);
        }
        // One that was doubled would come now.
        Thread.sleep(500);
        stops.set(true);
        for (Thread consumer : consumers) {
            consumer.join(patienceSeconds * 1000);
        }
        if (isFailed()) {
            throw new AssertionError(failed.get());
        }
        List<Integer> doubled = times.entrySet().stream()
                .filter(each -> each.getValue() > 1 && !inDoubt.contains(each.getKey())).map(Map.Entry::getKey).sorted().toList();
        System.out.printf("sent %d, consumed %d, in doubt %d, doubled %s%n", sent.get(), times.size(), inDoubt.size(), doubled);
        assertTrue(sent.get() > 0);
        assertEquals(List.of(), missing(), "messages that were not consumed");
        assertEquals(List.of(), doubled, "messages that were consumed twice");
    }

    /** Those that were not consumed; one in doubt may have been. */
    private List<Integer> missing() {
        List<Integer> missing = new ArrayList<>();
        for (int number = 0; number < sent.get(); number++) {
            if (!times.containsKey(number) && !inDoubt.contains(number)) {
                missing.add(number);
            }
        }
        return missing;
    }

    @Override
    public void close() {
        stopsSending.set(true);
        stops.set(true);
    }
}

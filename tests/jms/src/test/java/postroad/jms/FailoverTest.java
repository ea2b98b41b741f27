package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TransactionRolledBackException;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The client's failover transport while the broker is killed and comes back. */
@NeedsOwnBroker
@Timeout(90)
@DisplayName("failover: clients live through crashes of the broker")
class FailoverTest extends JmsTest {
    private static final int CRASHES = 3;
    private static final int MESSAGES = 300;

    private Broker broker;

    @BeforeEach
    void launch() throws Exception {
        broker = Broker.launch("failover");
    }

    @AfterEach
    void remove() throws Exception {
        closeConnections();
        broker.close();
    }

    private Connection failover(String... options) throws JMSException {
        String url = "failover:(" + broker.url() + ")?initialReconnectDelay=10&maxReconnectDelay=100"
                + "&useExponentialBackOff=false";
        Connection connection = unstarted(factoryFor(url, options));
        connection.start();
        return connection;
    }

    private void crash() throws Exception {
        broker.kill();
        Thread.sleep(100);
        broker.start();
    }

    @ParameterizedTest(name = "transacted: {0}")
    @ValueSource(booleans = {false, true})
    @DisplayName("a producer goes on, and nothing acknowledged is lost")
    void producerGoesOn(boolean transacted) throws Exception {
        ActiveMQQueue queue = queue("producer");
        Set<String> acknowledged = ConcurrentHashMap.newKeySet();
        AtomicBoolean stop = new AtomicBoolean();
        try (Clients clients = new Clients()) {
            Connection connection = failover();
            clients.run(() -> sendUntil(stop, connection, queue, transacted, acknowledged));
            for (int crash = 0; crash < CRASHES; crash++) {
                int before = acknowledged.size();
                awaitMore(acknowledged, before + 20);
                crash();
            }
            awaitMore(acknowledged, acknowledged.size() + 20);
            stop.set(true);
            clients.join(30);
        }
        Set<String> arrived = drain(queue);
        Set<String> lost = new TreeSet<>(acknowledged);
        lost.removeAll(arrived);
        assertEquals(Set.of(), lost, "acknowledged but lost");
    }

    private static Void sendUntil(AtomicBoolean stop, Connection connection, ActiveMQQueue queue,
            boolean transacted, Set<String> acknowledged) throws JMSException {
        Session session = transacted ? transacted(connection) : autoAcknowledge(connection);
        MessageProducer producer = session.createProducer(queue);
        for (int number = 0; !stop.get(); number++) {
            String text = "m" + number;
            producer.send(session.createTextMessage(text));
            try {
                if (transacted) {
                    session.commit();
                }
                acknowledged.add(text);
            } catch (TransactionRolledBackException inDoubt) {
                number--;
            }
        }
        return null;
    }

    private static void awaitMore(Set<String> set, int size) throws InterruptedException {
        long end = System.currentTimeMillis() + 20_000;
        while (set.size() < size) {
            assertTrue(System.currentTimeMillis() < end, () -> "no progress beyond " + set.size() + " messages");
            Thread.sleep(5);
        }
    }

    private Set<String> drain(ActiveMQQueue queue) throws JMSException {
        Connection connection = failover();
        MessageConsumer consumer = autoAcknowledge(connection).createConsumer(queue);
        Set<String> texts = new TreeSet<>();
        for (Message next = consumer.receive(2000); next != null; next = consumer.receive(500)) {
            texts.add(text(next));
        }
        connection.close();
        return texts;
    }

    @ParameterizedTest(name = "{0}")
    @ValueSource(strings = {"AUTO", "transacted"})
    @DisplayName("a consumer resumes and gets every message")
    void consumerResumes(String mode) throws Exception {
        ActiveMQQueue queue = queue("consumer");
        Set<String> want = new TreeSet<>(List.of(numbered("m", MESSAGES)));
        Connection sender = failover("jms.useAsyncSend=true");
        send(autoAcknowledge(sender), queue, numbered("m", MESSAGES - 1));
        send(autoAcknowledge(failover()), queue, "m" + (MESSAGES - 1));
        Set<String> confirmed = ConcurrentHashMap.newKeySet();
        Set<String> inDoubt = ConcurrentHashMap.newKeySet();
        Map<String, AtomicInteger> again = new ConcurrentHashMap<>();
        try (Clients clients = new Clients()) {
            Connection connection = failover("jms.prefetchPolicy.all=20");
            Future<Void> consumer = clients.run(() -> consume(connection, queue, mode.equals("transacted"),
                    confirmed, inDoubt, again));
            for (int crash = 0; crash < CRASHES; crash++) {
                awaitMore(confirmed, Math.min(MESSAGES - 10, confirmed.size() + 30));
                crash();
            }
            consumer.get(60, java.util.concurrent.TimeUnit.SECONDS);
        }
        Set<String> lost = new TreeSet<>(want);
        lost.removeAll(confirmed);
        lost.removeAll(drain(queue));
        // A commit without an answer may have happened; one for each crash at most.
        lost.removeAll(inDoubt);
        assertEquals(Set.of(), lost, "never received");
        assertTrue(inDoubt.size() <= CRASHES, () -> "in doubt: " + inDoubt);
        if (mode.equals("transacted")) {
            assertEquals(Map.of(), again, "committed, and received again");
        }
    }

    /** Takes messages slowly; what was confirmed and comes again is counted in {@code again}. */
    private static Void consume(Connection connection, ActiveMQQueue queue, boolean transacted,
            Set<String> confirmed, Set<String> inDoubt, Map<String, AtomicInteger> again) throws Exception {
        Session session = transacted ? transacted(connection) : autoAcknowledge(connection);
        MessageConsumer consumer = session.createConsumer(queue);
        Set<String> seen = new TreeSet<>();
        while (seen.size() < MESSAGES) {
            // Longer than a restart takes; null only if a message in doubt never comes again.
            Message next = consumer.receive(PATIENCE_MS);
            if (next == null) {
                break;
            }
            String text = text(next);
            seen.add(text);
            if (confirmed.contains(text)) {
                again.computeIfAbsent(text, unseen -> new AtomicInteger()).incrementAndGet();
            }
            Thread.sleep(2);
            try {
                if (transacted) {
                    session.commit();
                }
                confirmed.add(text);
            } catch (TransactionRolledBackException unanswered) {
                inDoubt.add(text);
            }
        }
        return null;
    }

    @Test
    @DisplayName("a transaction that the crash interrupts is rolled back or recovered, never half done")
    void interruptedTransaction() throws Exception {
        ActiveMQQueue in = queue("in");
        ActiveMQQueue out = queue("out");
        Connection connection = failover("jms.redeliveryPolicy.initialRedeliveryDelay=0");
        send(autoAcknowledge(connection), in, numbered("m", 10));
        Session session = transacted(connection);
        MessageConsumer consumer = session.createConsumer(in);
        boolean crashed = false;
        int committed = 0;
        long end = System.currentTimeMillis() + 40_000;
        while (committed < 5) {
            assertTrue(System.currentTimeMillis() < end, "no progress after the crash");
            try {
                List<String> pair = texts(consumer, 2);
                send(session, out, pair.toArray(new String[0]));
                if (committed == 2 && !crashed) {
                    crash();
                    crashed = true;
                }
                session.commit();
                committed++;
            } catch (TransactionRolledBackException again) {
                continue;
            } catch (JMSException failed) {
                session.rollback();
            }
        }
        session.close();
        assertEquals(new TreeSet<>(List.of(numbered("m", 10))), drain(out));
        assertEquals(Set.of(), drain(in));
    }

    @Test
    @DisplayName("a durable subscription and its backlog are there after a crash")
    void durableSubscription() throws Exception {
        Connection connection = closing(factoryFor("failover:(" + broker.url() + ")?maxReconnectDelay=100")
                .createConnection());
        connection.setClientID("durable");
        connection.start();
        ActiveMQTopic topic = topic("durable");
        Session session = autoAcknowledge(connection);
        MessageConsumer consumer = session.createDurableSubscriber(topic, "subscription");
        send(session, topic, "before");
        assertEquals("before", text(receive(consumer)));
        consumer.close();
        send(session, topic, "while away");
        crash();
        MessageConsumer back = session.createDurableSubscriber(topic, "subscription");
        send(session, topic, "after");
        assertEquals(List.of("while away", "after"), texts(back, 2));
        crash();
        send(session, topic, "to the resumed one");
        assertEquals("to the resumed one", text(receive(back)));
    }

    @Test
    @DisplayName("a clean stop (SIGTERM) ends with exit code 0 and clients fail over as well")
    void cleanStop() throws Exception {
        ActiveMQQueue queue = queue("stop");
        Session session = autoAcknowledge(failover());
        send(session, queue, "before");
        assertEquals(0, broker.stop(), broker::obituary);
        broker.start();
        send(session, queue, "after");
        assertEquals(List.of("before", "after"), texts(session.createConsumer(queue), 2));
    }
}

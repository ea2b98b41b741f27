package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.List;
import java.util.concurrent.Future;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Who gets how much at a time: credit and browsing. */
@DisplayName("JMS 8: prefetch and browsing")
class PrefetchTest extends PlainTest {
    private static final String PULL = "jms.prefetchPolicy.all=0";

    @Test
    @DisplayName("JMS 8.3: prefetch 0: receive(timeout) waits so long and no longer")
    void pullWaitsForTheTimeout() throws Exception {
        MessageConsumer consumer = autoAcknowledge(connect(PULL)).createConsumer(queue("pull"));
        long before = System.nanoTime();
        assertNull(consumer.receive(300));
        long waitedMs = (System.nanoTime() - before) / 1_000_000;
        assertTrue(waitedMs >= 290 && waitedMs < 5000, () -> "waited " + waitedMs + " ms");
    }

    @Test
    @DisplayName("JMS 8.3: prefetch 0: a message that comes while receive(timeout) waits is handed over")
    void pullIsServedLater() throws Exception {
        Queue queue = queue("pull");
        MessageConsumer consumer = autoAcknowledge(connect(PULL)).createConsumer(queue);
        Session sender = autoAcknowledge(connect());
        try (Clients clients = new Clients()) {
            Future<List<String>> got = clients.run(() -> texts(consumer, 1));
            Thread.sleep(200);
            send(sender, queue, "m");
            assertEquals(List.of("m"), got.get());
        }
    }

    @Test
    @DisplayName("JMS 8.3: prefetch 0: receiveNoWait and receive() take one message at a time, in order")
    void pullOneByOne() throws Exception {
        Connection connection = connect(PULL);
        Queue queue = queue("pull");
        Session session = autoAcknowledge(connection);
        MessageConsumer consumer = session.createConsumer(queue);
        assertNull(consumer.receiveNoWait());
        send(session, queue, numbered("m", 4));
        assertEquals("m0", text(consumer.receiveNoWait()));
        assertEquals("m1", text(consumer.receive(PATIENCE_MS)));
        assertEquals("m2", text(consumer.receive()));
        // The consumer holds nothing ahead: another one gets the rest.
        MessageConsumer other = autoAcknowledge(connect()).createConsumer(queue);
        assertEquals(List.of("m3"), texts(other, 1));
        assertNull(consumer.receiveNoWait());
    }

    @Test
    @DisplayName("JMS 8.3: prefetch 0: a pull that timed out takes no later message")
    void timedOutPullTakesNothing() throws Exception {
        Queue queue = queue("pull");
        MessageConsumer idle = autoAcknowledge(connect(PULL)).createConsumer(queue);
        assertNull(idle.receive(100));
        MessageConsumer other = autoAcknowledge(connect()).createConsumer(queue);
        send(autoAcknowledge(connect()), queue, numbered("m", 3));
        assertEquals(List.of("m0", "m1", "m2"), texts(other, 3));
    }

    @Test
    @DisplayName("JMS 8.3: prefetch 0: transacted pulls, rolled back and committed")
    void transactedPull() throws Exception {
        Connection connection = connect(with(PULL, AT_ONCE));
        Queue queue = queue("pull");
        send(autoAcknowledge(connection), queue, numbered("m", 3));
        Session session = transacted(connection);
        MessageConsumer consumer = session.createConsumer(queue);
        assertEquals(List.of("m0 1", "m1 1"), deliveries(consumer, 2));
        session.rollback();
        assertEquals(List.of("m0 2*", "m1 2*", "m2 1"), deliveries(consumer, 3));
        session.commit();
        session.close();
        assertEmpty(queue);
    }

    @Test
    @DisplayName("prefetch 1: a consumer that does not acknowledge holds back one message only")
    void prefetchOneHoldsOne() throws Exception {
        Queue queue = queue("one");
        Session stuckSession = connect("jms.prefetchPolicy.all=1").createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer stuck = stuckSession.createConsumer(queue);
        send(autoAcknowledge(connect()), queue, numbered("m", 10));
        Message held = receive(stuck);
        assertEquals("m0", text(held));
        MessageConsumer free = autoAcknowledge(connect("jms.prefetchPolicy.all=1")).createConsumer(queue);
        List<String> others = new ArrayList<>();
        for (Message next = free.receive(1000); next != null; next = free.receive(1000)) {
            others.add(text(next));
        }
        // The client asks for one more once it has handed one over: two are held back at most.
        assertTrue(others.size() >= 8, () -> "others got only " + others);
        assertFalse(others.contains("m0"));
        held.acknowledge();
        stuckSession.close();
        assertEquals(10 - 1 - others.size(), texts(free, 10 - 1 - others.size()).size());
        assertSilent(free);
    }

    @ParameterizedTest(name = "prefetch {0}")
    @ValueSource(ints = {1, 1000})
    @DisplayName("two equal consumers that were there before the messages share fairly")
    void fairSpread(int prefetch) throws Exception {
        Queue queue = queue("fair");
        String option = "jms.prefetchPolicy.all=" + prefetch;
        MessageConsumer one = autoAcknowledge(connect(option)).createConsumer(queue);
        MessageConsumer two = autoAcknowledge(connect(option)).createConsumer(queue);
        send(autoAcknowledge(connect()), queue, numbered("m", 60));
        List<String> byOne = new ArrayList<>();
        List<String> byTwo = new ArrayList<>();
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (byOne.size() + byTwo.size() < 60) {
            assertTrue(System.currentTimeMillis() < end, () -> "missing; got " + byOne + " and " + byTwo);
            Message fromOne = one.receive(100);
            Message fromTwo = two.receive(100);
            if (fromOne != null) {
                byOne.add(text(fromOne));
            }
            if (fromTwo != null) {
                byTwo.add(text(fromTwo));
            }
        }
        assertTrue(byOne.size() >= 20 && byTwo.size() >= 20, byOne + " and " + byTwo);
        java.util.TreeSet<String> all = new java.util.TreeSet<>(byOne);
        all.addAll(byTwo);
        assertEquals(60, all.size(), "each message once");
    }

    @Test
    @DisplayName("a large prefetch with a backlog larger than it: all arrive, in order")
    void largePrefetch() throws Exception {
        Queue queue = queue("large");
        Connection connection = connect(UNCONFIRMED, "jms.prefetchPolicy.all=700");
        Session session = autoAcknowledge(connection);
        send(session, queue, numbered("m", 3000));
        assertEquals(List.of(numbered("m", 3000)), texts(session.createConsumer(queue), 3000));
    }

    private static List<String> browse(QueueBrowser browser) throws JMSException {
        List<String> texts = new ArrayList<>();
        Enumeration<?> messages = browser.getEnumeration();
        while (messages.hasMoreElements()) {
            texts.add(text((Message) messages.nextElement()));
        }
        return texts;
    }

    @ParameterizedTest(name = "{0} messages")
    @ValueSource(ints = {0, 1, 10, 150})
    @DisplayName("JMS 6.2.8, 8.6: a browser sees all messages in order and takes none")
    void browserSeesAll(int count) throws Exception {
        Session session = autoAcknowledge(connect());
        Queue queue = queue("browse");
        send(session, queue, numbered("m", count));
        QueueBrowser browser = session.createBrowser(queue);
        assertEquals(List.of(numbered("m", count)), browse(browser));
        assertEquals(List.of(numbered("m", count)), browse(browser));
        browser.close();
        MessageConsumer consumer = session.createConsumer(queue);
        for (String text : numbered("m", count)) {
            assertEquals(text + " 1", delivery(receive(consumer)));
        }
        assertSilent(consumer);
    }

    @ParameterizedTest(name = "{0} messages")
    @ValueSource(ints = {0, 1, 3, 20})
    @DisplayName("prefetch 0: a browser sees all messages")
    void browserThatPulls(int count) throws Exception {
        Session session = autoAcknowledge(connect(PULL));
        Queue queue = queue("browse");
        send(session, queue, numbered("m", count));
        QueueBrowser browser = session.createBrowser(queue);
        assertEquals(List.of(numbered("m", count)), browse(browser));
        browser.close();
        // The same browser again may see nothing, now and then: docs/protocols/openwire.md.
        assertEquals(List.of(numbered("m", count)), browse(session.createBrowser(queue)));
    }

    @Test
    @DisplayName("JMS 6.2.8: a browser with a selector")
    void browserWithSelector() throws Exception {
        Session session = autoAcknowledge(connect());
        Queue queue = queue("browse");
        MessageProducer producer = session.createProducer(queue);
        for (int number = 0; number < 10; number++) {
            Message message = session.createTextMessage("m" + number);
            message.setIntProperty("number", number);
            producer.send(message);
        }
        assertEquals(List.of("m7", "m8", "m9"), browse(session.createBrowser(queue, "number > 6")));
    }

    @Test
    @DisplayName("JMS 6.2.8: a browser does not disturb a consumer at work")
    void browserBesideConsumer() throws Exception {
        Queue queue = queue("browse");
        send(autoAcknowledge(connect(UNCONFIRMED)), queue, numbered("m", 500));
        MessageConsumer consumer = autoAcknowledge(connect("jms.prefetchPolicy.all=10")).createConsumer(queue);
        try (Clients clients = new Clients()) {
            Future<List<String>> consumed = clients.run(() -> texts(consumer, 500));
            Session browsing = autoAcknowledge(connect());
            for (int round = 0; round < 5; round++) {
                QueueBrowser browser = browsing.createBrowser(queue);
                browse(browser);
                browser.close();
            }
            assertEquals(List.of(numbered("m", 500)), consumed.get());
        }
        assertEmpty(queue);
    }

    @Test
    @DisplayName("JMS 8.3: noLocal keeps a connection's own messages from its topic subscriber")
    void noLocal() throws Exception {
        Connection own = connect();
        Topic topic = topic("local");
        MessageConsumer withoutOwn = autoAcknowledge(own).createConsumer(topic, null, true);
        MessageConsumer withOwn = autoAcknowledge(own).createConsumer(topic, null, false);
        send(autoAcknowledge(own), topic, "own");
        send(autoAcknowledge(connect()), topic, "foreign");
        assertEquals(List.of("own", "foreign"), texts(withOwn, 2));
        assertEquals(List.of("foreign"), texts(withoutOwn, 1));
        assertSilent(withoutOwn);
    }
}

package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ResourceAllocationException;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.advisory.AdvisorySupport;
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Queues at the limits that their policies set: who waits, who is refused, what leaves. */
@NeedsOwnBroker
@DisplayName("Limits by policy")
class LimitsTest extends JmsTest {
    private static final String CONFIGURATION = """
            [[policy]]
            destination = "queue://block.>"
            messages_max = 2
            [[policy]]
            destination = "queue://fail.>"
            messages_max = 2
            at_limit = "fail"
            at_limit_wait_ms = 1000
            [[tenant]]
            name = "acme"
            destinations = ["queue://acme.>"]
            messages_max = 2
            at_limit = "fail"
            at_limit_wait_ms = 1000
            [[policy]]
            destination = "queue://ring.>"
            messages_max = 2
            at_limit = "drop-oldest"
            [[policy]]
            destination = "queue://cup.>"
            messages_max = 2
            at_limit = "drop-newest"
            [[policy]]
            destination = "queue://last.>"
            last_value_property = "stock"
            [[policy]]
            destination = "topic://pending.>"
            pending_max = 2
            [[policy]]
            destination = "topic://pending.rate.>"
            pending_max_percent = 250
            pending_evicted = "lowest-priority"
            [[policy]]
            destination = "queue://alone.>"
            exclusive = true
            [[policy]]
            destination = "queue://together.>"
            consumers_before_dispatch = 2
            time_before_dispatch_ms = 20000
            [[policy]]
            destination = "queue://shortly.>"
            consumers_before_dispatch = 9
            time_before_dispatch_ms = 700
            [[policy]]
            destination = "topic://ring.>"
            messages_max = 2
            at_limit = "drop-oldest"
            """;

    private static Broker broker;

    @BeforeAll
    static void launch() throws Exception {
        broker = Broker.launch("limits", CONFIGURATION);
    }

    @AfterAll
    static void close() throws Exception {
        broker.close();
    }

    private ActiveMQConnection connection(String... options) throws JMSException {
        ActiveMQConnection connection = unstarted(factoryFor(broker.url(), options));
        connection.start();
        return connection;
    }

    private Session session(String... options) throws JMSException {
        return autoAcknowledge(connection(options));
    }

    @ParameterizedTest(name = "{0}, {1}")
    @CsvSource({"PERSISTENT, jms.useAsyncSend=false", "NON_PERSISTENT, jms.alwaysSyncSend=true",
        "NON_PERSISTENT, jms.producerWindowSize=1024"})
    @DisplayName("a producer at the limit waits, others go on, and consuming lets it in, in order")
    void block(String mode, String option) throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue("block." + unique(mode));
        Session blocked = session(option);
        MessageProducer producer = blocked.createProducer(queue);
        producer.setDeliveryMode(mode.equals("PERSISTENT") ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT);
        CompletableFuture<Void> sent = CompletableFuture.runAsync(() -> {
            try {
                for (String text : numbered("m", 6)) {
                    producer.send(blocked.createTextMessage(text));
                }
            } catch (JMSException failed) {
                throw new IllegalStateException(failed);
            }
        });
        Session other = session();
        send(other, queue("elsewhere"), "others go on");
        Thread.sleep(SILENCE_MS);
        assertFalse(sent.isDone(), "the producer must wait");
        MessageConsumer consumer = other.createConsumer(queue);
        assertEquals(List.of(numbered("m", 6)), texts(consumer, 6));
        sent.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
    }

    @Test
    @DisplayName("consumers of a connection go on while one of its producers waits")
    void consumersOfABlockedConnection() throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue("block." + unique("own"));
        ActiveMQConnection connection = connection();
        Session blocked = autoAcknowledge(connection);
        send(blocked, queue, "m0", "m1");
        MessageProducer producer = blocked.createProducer(queue);
        CompletableFuture<Void> sent = CompletableFuture.runAsync(() -> {
            try {
                producer.send(blocked.createTextMessage("m2"));
            } catch (JMSException failed) {
                throw new IllegalStateException(failed);
            }
        });
        Thread.sleep(SILENCE_MS);
        assertFalse(sent.isDone());
        assertEquals(List.of("m0", "m1", "m2"), texts(autoAcknowledge(connection).createConsumer(queue), 3));
        sent.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
    }

    @Test
    @DisplayName("a send that waits too long is a ResourceAllocationException; the connection goes on")
    void fail() throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue("fail." + unique("late"));
        Session session = session();
        send(session, queue, "m0", "m1");
        MessageProducer producer = session.createProducer(queue);
        long start = System.nanoTime();
        ResourceAllocationException refused = assertThrows(ResourceAllocationException.class,
                () -> producer.send(session.createTextMessage("m2")));
        assertTrue(TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start) >= 990);
        assertTrue(refused.getMessage().contains("is at the limit"), refused.getMessage());
        MessageConsumer consumer = session.createConsumer(queue);
        assertEquals(List.of("m0", "m1"), texts(consumer, 2));
        producer.send(session.createTextMessage("m3"));
        assertEquals("m3", text(receive(consumer)));
    }

    @Test
    @DisplayName("all queues of a tenant have one limit together; others go on, and room in one is room for all")
    void tenant() throws Exception {
        Session session = session();
        List<ActiveMQQueue> queues = new ArrayList<>();
        for (String name : List.of("a", "b", "c")) {
            queues.add(new ActiveMQQueue("acme." + unique(name)));
        }
        send(session, queues.get(0), "m0");
        send(session, queues.get(1), "m1");
        MessageProducer third = session.createProducer(queues.get(2));
        ResourceAllocationException refused = assertThrows(ResourceAllocationException.class,
                () -> third.send(session.createTextMessage("m2")));
        assertTrue(refused.getMessage().contains("the tenant acme is at the limit"), refused.getMessage());
        ActiveMQQueue other = queue("other");
        send(session, other, "o0", "o1", "o2");
        assertEquals(List.of("o0", "o1", "o2"), texts(session.createConsumer(other), 3));
        assertEquals(List.of("m0"), texts(session.createConsumer(queues.get(0)), 1));
        third.send(session.createTextMessage("m3"));
        assertEquals(List.of("m3"), texts(session.createConsumer(queues.get(2)), 1));
        assertEquals(List.of("m1"), texts(session.createConsumer(queues.get(1)), 1));
    }

    @Test
    @DisplayName("a transaction that would exceed the limit is refused whole")
    void transaction() throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue("block." + unique("transaction"));
        ActiveMQQueue other = queue("other");
        Session session = session();
        send(session, queue, "m0", "m1");
        Session transacted = transacted(connection());
        transacted.createProducer(other).send(transacted.createTextMessage("with it"));
        transacted.createProducer(queue).send(transacted.createTextMessage("m2"));
        assertThrows(JMSException.class, transacted::commit);
        assertSilent(session.createConsumer(other));
        assertEquals(List.of("m0", "m1"), texts(session.createConsumer(queue), 2));
    }

    @ParameterizedTest(name = "{0}")
    @ValueSource(strings = {"ring", "cup"})
    @DisplayName("rings keep the newest, cups the oldest, and each drop is told of")
    void drop(String kind) throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue(kind + "." + unique("drop"));
        Session session = session();
        MessageConsumer advisories = session.createConsumer(AdvisorySupport.getMessageDiscardedAdvisoryTopic((ActiveMQDestination) queue));
        send(session, queue, "m0", "m1", "m2", "m3");
        List<String> want = kind.equals("ring") ? List.of("m2", "m3") : List.of("m0", "m1");
        for (int dropped = 0; dropped < 2; dropped++) {
            ActiveMQMessage shown = (ActiveMQMessage) ((ActiveMQMessage) receive(advisories)).getDataStructure();
            assertNull(shown.getContent());
        }
        broker.stop();
        broker.start();
        MessageConsumer consumer = session().createConsumer(queue);
        assertEquals(want, texts(consumer, 2), "after a restart, too");
        assertSilent(consumer);
    }

    @Test
    @DisplayName("a last-value queue keeps the newest message of each value, over a restart")
    void lastValue() throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue("last." + unique("value"));
        Session session = session();
        MessageProducer producer = session.createProducer(queue);
        for (String quote : List.of("A 1", "B 1", "A 2", "C 1", "A 3", "B 2")) {
            Message message = session.createTextMessage(quote);
            message.setStringProperty("stock", quote.substring(0, 1));
            producer.send(message);
        }
        broker.stop();
        broker.start();
        Session again = session();
        Message message = again.createTextMessage("C 2");
        message.setStringProperty("stock", "C");
        again.createProducer(queue).send(message);
        MessageConsumer consumer = again.createConsumer(queue);
        assertEquals(List.of("A 3", "B 2", "C 2"), texts(consumer, 3));
        assertSilent(consumer);
    }

    @Test
    @DisplayName("a slow subscriber of a topic loses the oldest, others lose nothing")
    void slowSubscriber() throws Exception {
        ActiveMQTopic topic = new ActiveMQTopic("ring." + unique("topic"));
        MessageConsumer slow = session("jms.prefetchPolicy.topicPrefetch=1").createConsumer(topic);
        MessageConsumer quick = session().createConsumer(topic);
        send(session(), topic, numbered("m", 6));
        assertEquals(List.of(numbered("m", 6)), texts(quick, 6));
        assertEquals(List.of("m0", "m4", "m5"), texts(slow, 3));
        assertSilent(slow);
    }

    @Test
    @DisplayName("a volatile subscriber loses the oldest of what is too much for it, which is told; a durable one keeps everything")
    void pending() throws Exception {
        ActiveMQTopic topic = new ActiveMQTopic("pending." + unique("topic"));
        MessageConsumer advisories = session().createConsumer(AdvisorySupport.getMessageDiscardedAdvisoryTopic(topic));
        ActiveMQConnection connection = unstarted(factoryFor(broker.url(), "jms.prefetchPolicy.durableTopicPrefetch=1"));
        connection.setClientID(unique("client"));
        connection.start();
        MessageConsumer durable = autoAcknowledge(connection).createDurableSubscriber(topic, "d");
        MessageConsumer slow = session("jms.prefetchPolicy.topicPrefetch=1").createConsumer(topic);
        send(session(), topic, numbered("m", 6));
        assertEquals(List.of("m0", "m4", "m5"), texts(slow, 3));
        assertSilent(slow);
        assertEquals(List.of(numbered("m", 6)), texts(durable, 6));
        for (int dropped = 0; dropped < 3; dropped++) {
            ActiveMQMessage shown = (ActiveMQMessage) ((ActiveMQMessage) receive(advisories)).getDataStructure();
            assertEquals(topic, shown.getDestination());
        }
        assertSilent(advisories);
    }

    @Test
    @DisplayName("how much may wait depends on the prefetch; of the lowest priority the oldest leaves")
    void pendingByPrefetch() throws Exception {
        ActiveMQTopic topic = new ActiveMQTopic("pending.rate." + unique("topic"));
        MessageConsumer slow = session("jms.prefetchPolicy.topicPrefetch=2").createConsumer(topic);
        Session session = session("jms.alwaysSyncSend=true");
        MessageProducer producer = session.createProducer(topic);
        for (int number = 0; number < 10; number++) {
            int priority = number == 3 ? 9 : 4;
            producer.send(session.createTextMessage("m" + number), DeliveryMode.NON_PERSISTENT, priority, 0);
        }
        // Two were sent ahead, and five wait.
        assertEquals(List.of("m0", "m1", "m3", "m6", "m7", "m8", "m9"), texts(slow, 7));
        assertSilent(slow);
    }

    @Test
    @DisplayName("consumers of a queue have it one after the other, if its policy says so")
    void exclusive() throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue("alone." + unique("queue"));
        Session session = session();
        MessageConsumer first = session.createConsumer(queue);
        MessageConsumer second = session().createConsumer(queue);
        send(session, queue, numbered("m", 4));
        assertEquals(List.of(numbered("m", 4)), texts(first, 4));
        assertSilent(second);
        first.close();
        send(session, queue, "next");
        assertEquals("next", text(receive(second)));
    }

    @Test
    @DisplayName("message groups are spread over the consumers that the first waits for")
    void consumersBeforeDispatch() throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue("together." + unique("queue"));
        Session session = session();
        MessageProducer producer = session.createProducer(queue);
        for (int number = 0; number < 4; number++) {
            Message message = session.createTextMessage("m" + number);
            message.setStringProperty("JMSXGroupID", number % 2 == 0 ? "even" : "odd");
            producer.send(message);
        }
        MessageConsumer first = session.createConsumer(queue);
        assertSilent(first);
        MessageConsumer second = session().createConsumer(queue);
        List<List<String>> shares = List.of(texts(first, 2), texts(second, 2));
        assertEquals(Set.of(List.of("m0", "m2"), List.of("m1", "m3")), Set.copyOf(shares));
    }

    @Test
    @DisplayName("who waits for others that do not come is served after the time that its policy says")
    void timeBeforeDispatch() throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue("shortly." + unique("queue"));
        Session session = session();
        send(session, queue, numbered("m", 2));
        MessageConsumer alone = session.createConsumer(queue);
        assertNull(alone.receive(200));
        assertEquals(List.of("m0", "m1"), texts(alone, 2));
    }
}

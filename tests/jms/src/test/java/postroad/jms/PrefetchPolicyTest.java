package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import java.util.Collections;
import java.util.List;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** How much policies send ahead to applications that say nothing about it. */
@NeedsOwnBroker
@DisplayName("Prefetch by policy")
class PrefetchPolicyTest extends JmsTest {
    private static final String CONFIGURATION = """
            [[policy]]
            destination = "queue://>"
            prefetch = 1
            browser_prefetch = 2
            [[policy]]
            destination = "queue://pull.>"
            prefetch = 0
            [[policy]]
            destination = "topic://>"
            prefetch = 3
            durable_prefetch = 2
            """;

    private static Broker broker;

    @BeforeAll
    static void launch() throws Exception {
        broker = Broker.launch("prefetch", CONFIGURATION);
    }

    @AfterAll
    static void close() throws Exception {
        broker.close();
    }

    private Connection connection(String... options) throws JMSException {
        Connection connection = unstarted(factoryFor(broker.url(), options));
        connection.start();
        return connection;
    }

    /** How many of ten messages a second consumer gets while the first has acknowledged nothing. */
    @ParameterizedTest(name = "{0}")
    @CsvSource({
        "jms.watchTopicAdvisories=true, 9",
        // The application's word counts.
        "jms.prefetchPolicy.queuePrefetch=4, 6",
        // As with ActiveMQ, its default cannot be told from its silence.
        "jms.prefetchPolicy.queuePrefetch=1000, 9"})
    @DisplayName("a queue: a consumer that acknowledges nothing has as much as the policy allows, unless it asked for another number")
    void queue(String option, int left) throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue(unique("spread"));
        Session idle = connection(option).createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer holding = idle.createConsumer(queue);
        Session session = autoAcknowledge(connection("jms.prefetchPolicy.all=2"));
        String[] texts = numbered("m", 10);
        send(session, queue, texts);
        assertEquals("m0", text(receive(holding)));
        MessageConsumer other = session.createConsumer(queue);
        assertEquals(List.of(texts).subList(10 - left, 10), texts(other, left));
        assertSilent(other);
    }

    @Test
    @DisplayName("prefetch 0 by policy: the client asks for each message")
    void pull() throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue("pull." + unique("queue"));
        Session session = autoAcknowledge(connection());
        MessageConsumer first = session.createConsumer(queue);
        send(session, queue, numbered("m", 3));
        MessageConsumer second = autoAcknowledge(connection()).createConsumer(queue);
        // With messages ahead the first consumer would have all of them. Neither receiveNoWait nor a receive in vain: the client waits for the
        // broker's answer to them only if the 0 is its own.
        assertEquals("m0", text(receive(second)));
        assertEquals(List.of("m1", "m2"), texts(first, 2));
        assertNull(second.receive(100));
    }

    @Test
    @DisplayName("browsers see everything, however little is sent ahead")
    void browser() throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue(unique("browse"));
        Session session = autoAcknowledge(connection());
        send(session, queue, numbered("m", 7));
        try (QueueBrowser browser = session.createBrowser(queue)) {
            assertEquals(7, Collections.list(browser.getEnumeration()).size());
        }
    }

    @Test
    @DisplayName("topics: volatile and durable subscribers get everything, in order, a few ahead")
    void topics() throws Exception {
        ActiveMQTopic topic = new ActiveMQTopic(unique("topic"));
        Connection connection = unstarted(factoryFor(broker.url()));
        connection.setClientID(unique("client"));
        connection.start();
        Session session = autoAcknowledge(connection);
        MessageConsumer plain = session.createConsumer(topic);
        MessageConsumer durable = session.createDurableSubscriber(topic, "d");
        send(session, topic, numbered("m", 9));
        assertEquals(List.of(numbered("m", 9)), texts(plain, 9));
        assertEquals(List.of(numbered("m", 9)), texts(durable, 9));
    }

    @Test
    @DisplayName("a transaction is sent no more than the policy's prefetch until it ends")
    void transaction() throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue(unique("transaction"));
        send(autoAcknowledge(connection()), queue, numbered("m", 2));
        Session session = transacted(connection());
        MessageConsumer consumer = session.createConsumer(queue);
        Message first = receive(consumer);
        assertEquals("m0", text(first));
        assertNull(consumer.receive(200));
        session.commit();
        assertEquals("m1", text(receive(consumer)));
        session.commit();
    }
}

package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import java.util.List;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQMessageConsumer;
import org.apache.activemq.advisory.AdvisorySupport;
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;
import org.apache.activemq.command.ConsumerId;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Consumers that have messages and say nothing about them: docs/features/slow-consumers.md. */
@NeedsOwnBroker
@DisplayName("Slow consumers")
class SlowConsumerTest extends JmsTest {
    private static final String CONFIGURATION = """
            [[policy]]
            destination = "queue://tell.>"
            slow_after_ms = 400
            [[policy]]
            destination = "queue://detach.>"
            slow_after_ms = 400
            slow_consumer_action = "detach"
            [[policy]]
            destination = "topic://detach.>"
            slow_after_ms = 400
            slow_consumer_action = "detach"
            [[policy]]
            destination = "queue://back.>"
            slow_after_ms = 400
            slow_consumer_action = "requeue"
            """;

    private static Broker broker;

    @BeforeAll
    static void launch() throws Exception {
        broker = Broker.launch("slow", CONFIGURATION);
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

    private Session session() throws JMSException {
        return autoAcknowledge(connection());
    }

    private MessageConsumer listen(ActiveMQDestination watched) throws JMSException {
        return session().createConsumer(AdvisorySupport.getSlowConsumerAdvisoryTopic(watched));
    }

    private static void assertTold(MessageConsumer advisories, MessageConsumer slow) throws JMSException {
        ActiveMQMessage told = (ActiveMQMessage) receive(advisories);
        ConsumerId id = ((ActiveMQMessageConsumer) slow).getConsumerId();
        assertEquals(id.toString(), told.getStringProperty(AdvisorySupport.MSG_PROPERTY_CONSUMER_ID));
    }

    /** A consumer of its own connection that has all messages, and has seen the first one. */
    private MessageConsumer silent(Session session, ActiveMQDestination from) throws JMSException {
        MessageConsumer consumer = session.createConsumer(from);
        send(session(), from, numbered("m", 3));
        return consumer;
    }

    @Test
    @DisplayName("tell: an advisory, once until the consumer speaks, and it keeps what it has")
    void tell() throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue("tell." + unique("queue"));
        MessageConsumer advisories = listen(queue);
        Session session = connection().createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer slow = silent(session, queue);
        assertTold(advisories, slow);
        assertSilent(advisories);
        assertSilent(session().createConsumer(queue));
        Message last = null;
        for (String text : numbered("m", 3)) {
            last = receive(slow);
            assertEquals(text, text(last));
        }
        last.acknowledge();
        send(session(), queue, "again");
        assertTold(advisories, slow);
    }

    @ParameterizedTest(name = "{0}")
    @ValueSource(strings = {"queue", "topic"})
    @DisplayName("detach: an advisory, and the consumer is closed; a queue delivers what it had to others, as a redelivery")
    void detach(String kind) throws Exception {
        String name = "detach." + unique(kind);
        ActiveMQDestination from = kind.equals("queue") ? new ActiveMQQueue(name) : new ActiveMQTopic(name);
        MessageConsumer advisories = listen(from);
        ActiveMQConnection connection = connection();
        MessageConsumer slow = silent(connection.createSession(false, Session.CLIENT_ACKNOWLEDGE), from);
        assertTold(advisories, slow);
        assertClosed(slow);
        Session other = autoAcknowledge(connection);
        MessageConsumer next = other.createConsumer(from);
        if (kind.equals("queue")) {
            assertEquals(List.of("m0", "m1", "m2"), texts(next, 3));
        }
        assertSilent(next);
        send(other, from, "the connection goes on");
        assertEquals("the connection goes on", text(receive(next)));
    }

    /** The client closes it when the broker says so, a little later than others hear of it. */
    private static void assertClosed(MessageConsumer consumer) throws Exception {
        long end = System.nanoTime() + PATIENCE_MS * 1_000_000L;
        while (System.nanoTime() < end) {
            try {
                consumer.getMessageListener();
            } catch (jakarta.jms.IllegalStateException closed) {
                return;
            }
            Thread.sleep(20);
        }
        throw new AssertionError("the consumer is still open");
    }

    @Test
    @DisplayName("detach: what the consumer says too late is refused, and the messages are delivered to others")
    void lateAfterDetach() throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue("detach." + unique("late"));
        MessageConsumer advisories = listen(queue);
        Session transacted = transacted(connection());
        MessageConsumer slow = silent(transacted, queue);
        assertEquals("m0", text(receive(slow)));
        // The client itself closes it with the transaction.
        assertTold(advisories, slow);
        assertEquals(List.of("m0", "m1", "m2"), texts(session().createConsumer(queue), 3));
        assertThrows(JMSException.class, transacted::commit, "another consumer had it");
    }

    @Test
    @DisplayName("take-back: others get what it had; what it says of them too late is refused, and it goes on once it speaks")
    void takeBack() throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue("back." + unique("queue"));
        MessageConsumer advisories = listen(queue);
        // By default the client does not wait to hear what becomes of an acknowledgement.
        ActiveMQConnection connection = connection("jms.sendAcksAsync=false");
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer slow = silent(session, queue);
        Message first = receive(slow);
        assertEquals("m0", text(first));
        assertTold(advisories, slow);
        MessageConsumer other = session().createConsumer(queue);
        for (String text : numbered("m", 3)) {
            Message message = receive(other);
            assertEquals(text, text(message));
            assertTrue(message.getJMSRedelivered(), "it counts as delivered");
        }
        assertThrows(JMSException.class, first::acknowledge, "another consumer had it");
        assertNull(other.receive(SILENCE_MS), "what others had is over");
    }
}

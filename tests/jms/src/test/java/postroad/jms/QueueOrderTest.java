package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Who gets which message of a queue, and when: priorities, message groups, expiry. */
class QueueOrderTest extends PlainTest {
    /** Without it, the client keeps what it was sent ahead, and the broker's order is not seen. */
    private static final String ONE_BY_ONE = "jms.prefetchPolicy.all=1";

    @ParameterizedTest(name = "delivery mode {0}")
    @ValueSource(ints = {DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT})
    @PostroadOnly("ActiveMQ orders by priority only where a policy says so")
    @DisplayName("JMS 3.4.10: the ten priorities, first in first out within each")
    void priorities(int mode) throws Exception {
        Queue queue = queue("priority");
        Connection sender = connect();
        Session session = autoAcknowledge(sender);
        MessageProducer producer = session.createProducer(queue);
        for (int round = 0; round < 2; round++) {
            for (int priority : new int[] {4, 0, 9, 5, 1, 8, 2, 7, 3, 6}) {
                producer.send(session.createTextMessage(priority + "." + round), mode, priority, 0);
            }
        }
        // Sends that nobody confirms may be on their way still; a closed connection has none.
        sender.close();
        MessageConsumer consumer = autoAcknowledge(connect()).createConsumer(queue);
        for (int priority = 9; priority >= 0; priority--) {
            for (int round = 0; round < 2; round++) {
                Message message = receive(consumer);
                assertEquals(priority + "." + round, text(message));
                assertEquals(priority, message.getJMSPriority());
            }
        }
    }

    private static TextMessage inGroup(Session session, String text, String group, int sequence) throws JMSException {
        TextMessage message = session.createTextMessage(text);
        message.setStringProperty("JMSXGroupID", group);
        message.setIntProperty("JMSXGroupSeq", sequence);
        return message;
    }

    private static boolean isFirst(Message message) throws JMSException {
        return message.propertyExists("JMSXGroupFirstForConsumer")
                && message.getBooleanProperty("JMSXGroupFirstForConsumer");
    }

    @Test
    @DisplayName("JMS 3.5.9: a message group goes to one consumer until it closes, then to the other")
    void groupStaysWithItsConsumer() throws Exception {
        Queue queue = queue("group");
        Connection first = connect(ONE_BY_ONE);
        MessageConsumer one = autoAcknowledge(first).createConsumer(queue);
        Session session = autoAcknowledge(connect());
        MessageProducer producer = session.createProducer(queue);
        producer.send(inGroup(session, "g0", "g", 1));
        Message begins = receive(one);
        assertEquals("g0", text(begins));
        assertEquals(MARKS_THE_FIRST_OF_A_GROUP, isFirst(begins));
        MessageConsumer two = autoAcknowledge(connect(ONE_BY_ONE)).createConsumer(queue);
        for (int number = 1; number < 6; number++) {
            producer.send(inGroup(session, "g" + number, "g", number + 1));
        }
        assertSilent(two);
        for (int number = 1; number < 4; number++) {
            Message message = receive(one);
            assertEquals("g" + number, text(message));
            assertFalse(isFirst(message), "only the first message is marked");
        }
        first.close();
        Message taken = receive(two);
        assertEquals("g4", text(taken));
        assertEquals(MARKS_THE_FIRST_OF_A_GROUP, isFirst(taken), "the first message for the new owner");
        assertEquals(List.of("g5"), texts(two, 1));
    }

    @Test
    @DisplayName("JMS 3.5.9: JMSXGroupSeq -1 ends a group, and the next message begins it anew")
    void groupEnds() throws Exception {
        Queue queue = queue("ends");
        MessageConsumer one = autoAcknowledge(connect()).createConsumer(queue);
        Session session = autoAcknowledge(connect());
        MessageProducer producer = session.createProducer(queue);
        producer.send(inGroup(session, "g0", "g", 1));
        producer.send(inGroup(session, "g1", "g", -1));
        producer.send(inGroup(session, "g2", "g", 1));
        Message[] messages = {receive(one), receive(one), receive(one)};
        boolean marks = MARKS_THE_FIRST_OF_A_GROUP;
        assertEquals(List.of(marks, false, marks),
                List.of(isFirst(messages[0]), isFirst(messages[1]), isFirst(messages[2])));
    }

    @Test
    @DisplayName("JMS 8.3.3: a durable subscription with noLocal never gets what its own client sent")
    void durableWithoutLocal() throws Exception {
        Topic topic = topic("local");
        String client = unique("client");
        Connection own = named(client);
        Session session = autoAcknowledge(own);
        MessageConsumer subscriber = session.createDurableSubscriber(topic, "s", "", true);
        send(session, topic, "own");
        send(autoAcknowledge(connect()), topic, "other");
        assertEquals(List.of("other"), texts(subscriber, 1));
        assertSilent(subscriber);
        subscriber.close();
        session.unsubscribe("s");
    }

    @Test
    @PostroadOnly("ActiveMQ looks for expired messages every 30 s")
    @DisplayName("JMS 3.4.9: what expires unread is in the dead-letter queue soon, without an end, with its cause")
    void expiredUnread() throws Exception {
        Queue queue = queue("expires");
        Session session = autoAcknowledge(connect());
        MessageProducer producer = session.createProducer(queue);
        String mark = unique("mark");
        for (int mode : new int[] {DeliveryMode.NON_PERSISTENT, DeliveryMode.PERSISTENT}) {
            TextMessage message = session.createTextMessage("mode " + mode);
            message.setJMSCorrelationID(mark);
            producer.send(message, mode, 4, 300);
        }
        MessageConsumer dead = autoAcknowledge(connect())
                .createConsumer(session.createQueue("ActiveMQ.DLQ"), "JMSCorrelationID = '" + mark + "'");
        Message message = receive(dead);
        assertEquals("mode " + DeliveryMode.PERSISTENT, text(message));
        assertEquals(0, message.getJMSExpiration());
        if (SHOWS_WHY_A_LETTER_IS_DEAD) {
            assertTrue(message.getStringProperty("dlqDeliveryFailureCause").startsWith("expired"));
        }
        assertSilent(dead);
        assertEmpty(queue);
    }
}

package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.activemq.ScheduledMessage;
import org.apache.activemq.command.ActiveMQQueue;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** ActiveMQ's {@code ScheduledMessage} properties. */
@Timeout(60)
@DisplayName("messages that are due later")
class ScheduleTest extends JmsTest {
    private static TextMessage due(Session session, String text, long delayMs) throws JMSException {
        TextMessage message = session.createTextMessage(text);
        message.setLongProperty(ScheduledMessage.AMQ_SCHEDULED_DELAY, delayMs);
        return message;
    }

    @ParameterizedTest(name = "{0}")
    @ValueSource(strings = {"queue", "topic"})
    @DisplayName("a delayed message comes when it is due, and not before")
    void delay(String kind) throws Exception {
        var destination = kind.equals("queue") ? queue("delay") : topic("delay");
        Session session = autoAcknowledge(connect());
        MessageConsumer consumer = session.createConsumer(destination);
        long begun = System.currentTimeMillis();
        session.createProducer(destination).send(due(session, "later", 700));
        send(session, destination, "now");
        assertEquals("now", text(receive(consumer)));
        Message later = receive(consumer);
        long waited = System.currentTimeMillis() - begun;
        assertEquals("later", text(later));
        assertTrue(waited >= 700, () -> "after " + waited + " ms");
        assertNotNull(later.getStringProperty("scheduledJobId"));
        assertEquals(false, later.propertyExists(ScheduledMessage.AMQ_SCHEDULED_DELAY));
        assertSilent(consumer);
    }

    @Test
    @DisplayName("a delay below zero, from a moment that has passed, delays nothing")
    void passed() throws Exception {
        ActiveMQQueue queue = queue("passed");
        Session session = autoAcknowledge(connect());
        TextMessage message = session.createTextMessage("late");
        // Newer clients refuse it themselves in setLongProperty; older ones send it.
        ((org.apache.activemq.command.Message) message).setProperty(ScheduledMessage.AMQ_SCHEDULED_DELAY, -5L);
        session.createProducer(queue).send(message);
        assertEquals("late", text(receive(session.createConsumer(queue))));
    }

    @Test
    @PostroadOnly("ActiveMQ hands over what is due within one second in any order")
    @DisplayName("messages come in the order of their times, whatever the order of sending")
    void order() throws Exception {
        ActiveMQQueue queue = queue("order");
        Session session = autoAcknowledge(connect());
        MessageConsumer consumer = session.createConsumer(queue);
        for (int number : new int[] {3, 1, 4, 2, 0}) {
            session.createProducer(queue).send(due(session, "m" + number, 500 + 500 * number));
        }
        assertEquals(List.of(numbered("m", 5)), texts(consumer, 5));
    }

    @Test
    @DisplayName("a period with a repeat sends one message more than the repeat says, each with an id of its own")
    void repeat() throws Exception {
        ActiveMQQueue queue = queue("repeat");
        Session session = autoAcknowledge(connect());
        MessageConsumer consumer = session.createConsumer(queue);
        TextMessage message = due(session, "again", 100);
        message.setLongProperty(ScheduledMessage.AMQ_SCHEDULED_PERIOD, 50);
        message.setIntProperty(ScheduledMessage.AMQ_SCHEDULED_REPEAT, 3);
        session.createProducer(queue).send(message);
        Set<String> ids = new HashSet<>();
        for (int number = 0; number < 4; number++) {
            Message next = receive(consumer);
            assertEquals("again", text(next));
            ids.add(next.getJMSMessageID());
            assertNotEquals(message.getJMSMessageID(), next.getJMSMessageID());
        }
        assertEquals(4, ids.size());
        assertSilent(consumer);
    }

    @Test
    @DisplayName("a transaction schedules at its commit, and not at its rollback")
    void transaction() throws Exception {
        ActiveMQQueue queue = queue("transaction");
        Connection connection = connect();
        MessageConsumer consumer = autoAcknowledge(connection).createConsumer(queue);
        Session session = transacted(connection);
        for (boolean commit : new boolean[] {false, true}) {
            session.createProducer(queue).send(due(session, "commit: " + commit, 10));
            if (commit) {
                assertSilent(consumer);
                session.commit();
            } else {
                session.rollback();
            }
        }
        assertEquals("commit: true", text(receive(consumer)));
        assertSilent(consumer);
    }

    @Test
    @PostroadOnly("ActiveMQ takes a cron expression that cannot be, without an exception")
    @DisplayName("a cron expression is checked when the message is sent")
    void badCron() throws Exception {
        ActiveMQQueue queue = queue("cron");
        Session session = autoAcknowledge(connect());
        // Others the client itself refuses.
        TextMessage never = session.createTextMessage("never");
        never.setStringProperty(ScheduledMessage.AMQ_SCHEDULED_CRON, "0 0 31 2 *");
        assertThrows(JMSException.class, () -> session.createProducer(queue).send(never));
        TextMessage good = session.createTextMessage("next year");
        good.setStringProperty(ScheduledMessage.AMQ_SCHEDULED_CRON, "0 0 1 1 *");
        session.createProducer(queue).send(good);
        assertSilent(session.createConsumer(queue));
    }

    private static Message manage(Session session, String action) throws JMSException {
        Message request = session.createMessage();
        request.setStringProperty(ScheduledMessage.AMQ_SCHEDULER_ACTION, action);
        return request;
    }

    @Test
    @NeedsOwnBroker
    @DisplayName("jobs are browsed, and ended one by one or all")
    void management() throws Exception {
        try (Broker broker = Broker.launch("jobs")) {
            ActiveMQQueue queue = queue("managed");
            Connection connection = unstarted(factoryFor(broker.url()));
            connection.start();
            Session session = autoAcknowledge(connection);
            for (int number = 0; number < 3; number++) {
                session.createProducer(queue).send(due(session, "m" + number, 3000 + 1000 * number));
            }
            var manager = session.createProducer(
                    session.createTopic(ScheduledMessage.AMQ_SCHEDULER_MANAGEMENT_DESTINATION));
            var replies = session.createTemporaryQueue();
            MessageConsumer found = session.createConsumer(replies);
            for (List<String> want : List.of(List.of("m0", "m1", "m2"), List.of("m0", "m2"), List.<String>of())) {
                Message browse = manage(session, ScheduledMessage.AMQ_SCHEDULER_ACTION_BROWSE);
                browse.setJMSReplyTo(replies);
                manager.send(browse);
                Message last = null;
                for (String text : want) {
                    Message job = receive(found);
                    assertEquals(text, text(job));
                    last = text.equals("m1") ? job : last;
                }
                assertSilent(found);
                if (last != null) {
                    Message remove = manage(session, ScheduledMessage.AMQ_SCHEDULER_ACTION_REMOVE);
                    remove.setStringProperty(ScheduledMessage.AMQ_SCHEDULED_ID,
                            last.getStringProperty(ScheduledMessage.AMQ_SCHEDULED_ID));
                    manager.send(remove);
                } else if (!want.isEmpty()) {
                    manager.send(manage(session, ScheduledMessage.AMQ_SCHEDULER_ACTION_REMOVEALL));
                }
            }
            Message nonsense = manage(session, "SHRUG");
            assertThrows(JMSException.class, () -> manager.send(nonsense));
            broker.kill();
            broker.start();
            Connection next = unstarted(factoryFor(broker.url()));
            next.start();
            MessageConsumer consumer = autoAcknowledge(next).createConsumer(queue);
            assertEquals(null, consumer.receive(6000));
        }
    }

    @Test
    @NeedsOwnBroker
    @DisplayName("what is scheduled survives kill -9, comes when it is due, and comes once")
    void restart() throws Exception {
        try (Broker broker = Broker.launch("schedule")) {
            ActiveMQQueue queue = queue("restart");
            Connection connection = unstarted(factoryFor(broker.url()));
            Session session = autoAcknowledge(connection);
            session.createProducer(queue).send(due(session, "while away", 300));
            session.createProducer(queue).send(due(session, "afterwards", 3000));
            TextMessage often = due(session, "often", 100);
            often.setLongProperty(ScheduledMessage.AMQ_SCHEDULED_PERIOD, 1);
            often.setIntProperty(ScheduledMessage.AMQ_SCHEDULED_REPEAT, 4);
            session.createProducer(queue).send(often);
            broker.kill();
            Thread.sleep(500);
            for (int start = 0; start < 3; start++) {
                broker.start();
                broker.kill();
            }
            broker.start();
            Connection next = unstarted(factoryFor(broker.url()));
            next.start();
            MessageConsumer consumer = autoAcknowledge(next).createConsumer(queue);
            List<String> got = texts(consumer, 7);
            assertEquals(5, got.stream().filter("often"::equals).count(), got::toString);
            assertEquals(1, got.stream().filter("while away"::equals).count(), got::toString);
            assertEquals("afterwards", got.get(6), got::toString);
            assertSilent(consumer);
        }
    }
}

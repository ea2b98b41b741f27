package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** JMS 2.0 section 6.2.7: local transactions. */
@DisplayName("JMS 6.2.7: transactions")
class TransactionsTest extends PlainTest {
    private Destination destination(String kind) {
        return kind.equals("queue") ? queue("tx") : topic("tx");
    }

    @ParameterizedTest(name = "{0}")
    @ValueSource(strings = {"queue", "topic"})
    @DisplayName("JMS 6.2.7: sends are invisible before the commit and arrive in order after it")
    void sendsAppearAtCommit(String kind) throws Exception {
        Connection connection = connect();
        Destination destination = destination(kind);
        MessageConsumer consumer = autoAcknowledge(connection).createConsumer(destination);
        Session session = transacted(connection);
        send(session, destination, numbered("m", 20));
        assertSilent(consumer);
        session.commit();
        assertEquals(List.of(numbered("m", 20)), texts(consumer, 20));
    }

    @ParameterizedTest(name = "{0}")
    @ValueSource(strings = {"queue", "topic"})
    @DisplayName("JMS 6.2.7: sends of a rolled back transaction never appear")
    void rolledBackSendsVanish(String kind) throws Exception {
        Connection connection = connect();
        Destination destination = destination(kind);
        MessageConsumer consumer = autoAcknowledge(connection).createConsumer(destination);
        Session session = transacted(connection);
        send(session, destination, "gone");
        session.rollback();
        send(session, destination, "kept");
        session.commit();
        assertEquals("kept 1", delivery(receive(consumer)));
        assertSilent(consumer);
    }

    @ParameterizedTest(name = "{0} ended")
    @ValueSource(strings = {"session", "connection", "socket"})
    @DisplayName("JMS 6.2.7: closing or breaking off is a rollback, of sends and of receives")
    void endingIsRollback(String ended) throws Exception {
        Queue in = queue("in");
        Queue out = queue("out");
        send(autoAcknowledge(connect()), in, numbered("m", 3));
        Connection connection = breakable();
        Session session = transacted(connection);
        MessageConsumer consumer = session.createConsumer(in);
        assertEquals(List.of("m0 1", "m1 1"), deliveries(consumer, 2));
        send(session, out, "never");
        switch (ended) {
            case "session" -> session.close();
            case "connection" -> connection.close();
            default -> breakOff(connection);
        }
        MessageConsumer again = autoAcknowledge(connect()).createConsumer(in);
        for (String want : List.of("m0", "m1")) {
            Message message = receive(again);
            assertEquals(want, text(message));
            assertTrue(message.getJMSRedelivered(), want);
        }
        assertEquals("m2", text(receive(again)));
        assertSilent(again);
        assertEmpty(out);
    }

    @Test
    @DisplayName("JMS 6.2.7: receives and sends of one transaction are committed as one")
    void receiveAndSendCommitted() throws Exception {
        Connection connection = connect();
        Queue in = queue("in");
        Queue out = queue("out");
        send(autoAcknowledge(connection), in, numbered("m", 5));
        Session session = transacted(connection);
        MessageConsumer consumer = session.createConsumer(in);
        for (String text : texts(consumer, 5)) {
            send(session, out, text + " done");
        }
        session.commit();
        session.close();
        assertEmpty(in);
        assertEquals(List.of("m0 done", "m1 done", "m2 done", "m3 done", "m4 done"),
                texts(autoAcknowledge(connection).createConsumer(out), 5));
    }

    @Test
    @DisplayName("JMS 6.2.7, 3.5.11: rollback delivers again in order, with a growing count")
    void rollbackRedelivers() throws Exception {
        Connection connection = connect(AT_ONCE);
        Queue queue = queue("rollback");
        send(autoAcknowledge(connection), queue, numbered("m", 5));
        Session session = transacted(connection);
        MessageConsumer consumer = session.createConsumer(queue);
        assertEquals(List.of("m0 1", "m1 1", "m2 1"), deliveries(consumer, 3));
        session.rollback();
        assertEquals(List.of("m0 2*", "m1 2*", "m2 2*", "m3 1"), deliveries(consumer, 4));
        session.rollback();
        assertEquals(List.of("m0 3*", "m1 3*", "m2 3*", "m3 2*", "m4 1"), deliveries(consumer, 5));
        session.commit();
        session.close();
        assertEmpty(queue);
    }

    @Test
    @DisplayName("JMS 6.2.7: after a rollback another consumer gets the messages, marked")
    void rollbackThenOtherConsumer() throws Exception {
        Connection connection = connect(AT_ONCE);
        Queue queue = queue("other");
        send(autoAcknowledge(connection), queue, numbered("m", 2));
        Session session = transacted(connection);
        MessageConsumer consumer = session.createConsumer(queue);
        assertEquals(List.of("m0", "m1"), texts(consumer, 2));
        session.rollback();
        session.close();
        MessageConsumer other = autoAcknowledge(connect()).createConsumer(queue);
        for (String want : List.of("m0", "m1")) {
            Message message = receive(other);
            assertEquals(want, text(message));
            assertTrue(message.getJMSRedelivered(), want);
            assertTrue(message.getIntProperty("JMSXDeliveryCount") >= 2, want);
        }
        assertSilent(other);
    }

    @Test
    @DisplayName("JMS 6.2.7: several destinations of both kinds in one transaction")
    void severalDestinations() throws Exception {
        Connection connection = connect();
        List<Destination> destinations = List.of(queue("q1"), queue("q2"), topic("t1"), queue("q3"), topic("t2"));
        Session receiving = autoAcknowledge(connection);
        List<MessageConsumer> consumers = new java.util.ArrayList<>();
        for (Destination destination : destinations) {
            consumers.add(receiving.createConsumer(destination));
        }
        Session session = transacted(connection);
        for (boolean commit : new boolean[] {false, true}) {
            for (Destination destination : destinations) {
                send(session, destination, commit + " 0", commit + " 1");
            }
            for (MessageConsumer consumer : consumers) {
                assertSilent(consumer);
            }
            if (commit) {
                session.commit();
            } else {
                session.rollback();
            }
        }
        for (MessageConsumer consumer : consumers) {
            assertEquals(List.of("true 0", "true 1"), texts(consumer, 2));
            assertSilent(consumer);
        }
    }

    @Test
    @DisplayName("JMS 6.2.7: an empty commit and an empty rollback do nothing")
    void emptyTransactions() throws Exception {
        Connection connection = connect();
        Session session = transacted(connection);
        session.commit();
        session.rollback();
        Queue queue = queue("empty");
        send(session, queue, "m");
        session.commit();
        session.commit();
        assertEquals("m", text(receive(autoAcknowledge(connection).createConsumer(queue))));
    }

    @Test
    @DisplayName("JMS 6.2.7: a durable subscriber's rollback and commit")
    void durableSubscriber() throws Exception {
        Connection connection = named(unique("client"), AT_ONCE);
        Topic topic = topic("durable");
        Session session = transacted(connection);
        MessageConsumer consumer = session.createDurableSubscriber(topic, "subscription");
        send(autoAcknowledge(connection), topic, numbered("m", 3));
        assertEquals(List.of("m0 1", "m1 1"), deliveries(consumer, 2));
        session.rollback();
        assertEquals(List.of("m0 2*", "m1 2*", "m2 1"), deliveries(consumer, 3));
        session.commit();
        session.close();
        Session next = autoAcknowledge(connection);
        MessageConsumer rest = next.createDurableSubscriber(topic, "subscription");
        assertSilent(rest);
        rest.close();
        next.unsubscribe("subscription");
    }

    @Test
    @NeedsOwnBroker
    @DisplayName("JMS 6.2.7: what was committed survives a restart, what was not is gone")
    void restart() throws Exception {
        try (Broker broker = Broker.launch("transactions")) {
            for (boolean crash : new boolean[] {false, true}) {
                Queue in = queue("in");
                Queue out = queue("out");
                Connection connection = closing(open(broker));
                send(autoAcknowledge(connection), in, numbered("m", 4));
                Session committed = transacted(connection);
                MessageConsumer consumer = committed.createConsumer(in);
                assertEquals(List.of("m0", "m1"), texts(consumer, 2));
                send(committed, out, "committed");
                committed.commit();
                assertEquals(List.of("m2"), texts(consumer, 1));
                send(committed, out, "not committed");
                if (crash) {
                    broker.kill();
                } else {
                    assertEquals(0, broker.stop(), broker::obituary);
                }
                broker.start();
                Connection next = closing(open(broker));
                MessageConsumer rest = autoAcknowledge(next).createConsumer(in);
                assertEquals(List.of("m2", "m3"), texts(rest, 2));
                assertSilent(rest);
                MessageConsumer sent = autoAcknowledge(next).createConsumer(out);
                assertEquals("committed", text(receive(sent)));
                assertSilent(sent);
            }
        }
    }
}

package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.IllegalStateException;
import jakarta.jms.InvalidClientIDException;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.InvalidSelectorException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What is refused, by which exception, and what goes on working afterwards. */
@DisplayName("JMS 3.8, 6.1, 7: selectors, client ids, life cycle and errors")
class ErrorsTest extends PlainTest {

    @ParameterizedTest(name = "{0}")
    @ValueSource(strings = {"a =", "= 1", "a = 'open", "a BETWEEN 1", "a LIKE 5", "a IN ()", "NOT", "a b", "(a = 1",
        "a = 1)", "a LIKE 'x' ESCAPE 'yy'", "1 +", "a IS", "a IN ('x',)", "a = #", "AND a = 1"})
    @DisplayName("JMS 3.8.1: a malformed selector is an InvalidSelectorException")
    void malformedSelector(String selector) throws Exception {
        Session session = autoAcknowledge(connect());
        Queue queue = queue("selector");
        Topic topic = topic("selector");
        assertThrows(InvalidSelectorException.class, () -> session.createConsumer(queue, selector));
        assertThrows(InvalidSelectorException.class, () -> session.createConsumer(topic, selector));
        send(session, queue, "the connection goes on");
        assertEquals("the connection goes on", text(receive(session.createConsumer(queue))));
    }

    @ParameterizedTest(name = "{0} selects {1}")
    @CsvSource(delimiter = ';', quoteCharacter = '"', value = {
        "n = 7; 7", "n <> 7; 0 1 2 3 4 5 6 8 9", "n > 7; 8 9", "n >= 7 AND n < 9; 7 8",
        "n BETWEEN 2 AND 4; 2 3 4", "n NOT BETWEEN 1 AND 8; 0 9", "even = TRUE; 0 2 4 6 8",
        "even <> TRUE; 1 3 5 7 9", "even = FALSE AND n < 4; 1 3", "NOT even = TRUE AND n > 5; 7 9",
        "s = 's3'; 3", "s IN ('s1', 's5', 'x'); 1 5", "s NOT IN ('s1', 's2', 's3', 's4', 's5', 's6'); 0 7 8 9",
        "s LIKE 's_'; 0 1 2 3 4 5 6 7 8 9", "s LIKE '%4'; 4", "s LIKE 's!_' ESCAPE '!'; ", "s NOT LIKE 's%'; ",
        "missing IS NULL AND n < 2; 0 1", "n IS NOT NULL AND n = 1; 1", "missing = 1; ", "NOT (missing = 1); ",
        "missing = 1 OR n = 3; 3", "n * 2 + 1 = 7; 3", "n / 2 > 4; 9", "-n = -4; 4", "l = 9000000000000000003; 3",
        "d > 3.6 AND d < 4.6; 4", "d = 2.5E0; 2", "f < 1; 0", "b = 5; 5", "sh = 105; 5", "n = '7'; ",
        "JMSPriority = 3; 3", "JMSPriority > 7 ; 8 9", "JMSType = 't6'; 6", "JMSCorrelationID = 'c2'; 2",
        "JMSDeliveryMode = 'PERSISTENT' AND n < 4; 0 2", "JMSDeliveryMode = 'NON_PERSISTENT' AND n < 4; 1 3",
        "JMSTimestamp > 0 AND n = 2; 2", "JMSXGroupID = 'g1' AND n < 5; 1 4", "quote = 'it''s' AND n = 0; 0"})
    @DisplayName("JMS 3.8: selectors over headers and properties of every type")
    void selectors(String selector, String want) throws Exception {
        Connection connection = connect();
        Session session = autoAcknowledge(connection);
        Queue queue = queue("selector");
        Topic topic = topic("selector");
        MessageConsumer subscriber = session.createConsumer(topic, selector);
        for (int number = 0; number < 10; number++) {
            int mode = number % 2 == 0 ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT;
            session.createProducer(queue).send(numberedMessage(session, number), mode, number, 0);
            session.createProducer(topic).send(numberedMessage(session, number), mode, number, 0);
        }
        List<String> wanted = want == null ? List.of() : List.of(want.split(" "));
        // Persistent and other messages have no order between them (JMS 6.2.9.2): compared as sets.
        assertEquals(wanted, sorted(texts(subscriber, wanted.size())));
        assertNull(subscriber.receive(50));
        MessageConsumer consumer = session.createConsumer(queue, selector);
        assertEquals(wanted, sorted(texts(consumer, wanted.size())));
        assertNull(consumer.receive(50));
        consumer.close();
        List<String> rest = new ArrayList<>(List.of(numbered("", 10)));
        rest.removeAll(wanted);
        assertEquals(rest, sorted(texts(session.createConsumer(queue), rest.size())));
    }

    private static List<String> sorted(List<String> texts) {
        return texts.stream().sorted().toList();
    }

    private static Message numberedMessage(Session session, int number) throws JMSException {
        Message message = session.createTextMessage(String.valueOf(number));
        message.setIntProperty("n", number);
        message.setBooleanProperty("even", number % 2 == 0);
        message.setStringProperty("s", "s" + number);
        message.setLongProperty("l", 9_000_000_000_000_000_000L + number);
        message.setDoubleProperty("d", number + 0.5);
        message.setFloatProperty("f", number + 0.5f);
        message.setByteProperty("b", (byte) number);
        message.setShortProperty("sh", (short) (100 + number));
        message.setStringProperty("quote", "it's");
        message.setJMSType("t" + number);
        message.setJMSCorrelationID("c" + number);
        message.setStringProperty("JMSXGroupID", "g" + number % 3);
        return message;
    }

    @Test
    @DisplayName("JMS 6.1.2: a client id in use is refused with InvalidClientIDException, and is free once closed")
    void duplicateClientId() throws Exception {
        String id = unique("client");
        Connection first = unstarted();
        first.setClientID(id);
        first.start();
        Connection second = unstarted();
        assertThrows(InvalidClientIDException.class, () -> {
            second.setClientID(id);
            second.start();
        });
        send(autoAcknowledge(first), queue("first"), "the first goes on");
        first.close();
        Connection third = unstarted();
        third.setClientID(id);
        third.start();
        send(autoAcknowledge(third), queue("third"), "the id is free again");
    }

    @Test
    @DisplayName("JMS 6.1.5: nothing is delivered before start() and after stop()")
    void startAndStop() throws Exception {
        Queue queue = queue("start");
        send(autoAcknowledge(connect()), queue, "m0");
        Connection connection = unstarted();
        MessageConsumer consumer = autoAcknowledge(connection).createConsumer(queue);
        assertNull(consumer.receive(SILENCE_MS));
        connection.start();
        assertEquals("m0", text(receive(consumer)));
        connection.stop();
        send(autoAcknowledge(connect()), queue, "m1");
        assertNull(consumer.receive(SILENCE_MS));
        connection.start();
        assertEquals("m1", text(receive(consumer)));
    }

    @Test
    @DisplayName("JMS 6.1.5: a stopped connection can still send")
    void stoppedConnectionSends() throws Exception {
        Queue queue = queue("stopped");
        send(autoAcknowledge(unstarted()), queue, "m");
        assertEquals("m", text(receive(autoAcknowledge(connect()).createConsumer(queue))));
    }

    @Test
    @DisplayName("JMS 6.1.8, 6.2.15: what is closed answers with IllegalStateException")
    void closedIsIllegalState() throws Exception {
        Connection connection = connect();
        Queue queue = queue("closed");
        Session session = autoAcknowledge(connection);
        MessageConsumer consumer = session.createConsumer(queue);
        MessageProducer producer = session.createProducer(queue);
        consumer.close();
        assertThrows(IllegalStateException.class, () -> consumer.receive(1));
        producer.close();
        assertThrows(IllegalStateException.class, () -> producer.send(session.createMessage()));
        session.close();
        assertThrows(IllegalStateException.class, () -> session.createConsumer(queue));
        assertThrows(IllegalStateException.class, session::createTextMessage);
        assertThrows(IllegalStateException.class, session::recover);
        Session plain = autoAcknowledge(connection);
        assertThrows(IllegalStateException.class, plain::commit);
        assertThrows(IllegalStateException.class, plain::rollback);
        Session transacted = transacted(connection);
        assertThrows(IllegalStateException.class, transacted::recover);
        connection.close();
        assertThrows(JMSException.class, () -> autoAcknowledge(connection));
        connection.close();
    }

    @Test
    @DisplayName("JMS 7.2: an invalid destination is an InvalidDestinationException")
    void invalidDestination() throws Exception {
        Session session = autoAcknowledge(connect());
        assertThrows(InvalidDestinationException.class, () -> session.createConsumer(null));
        JMSException unknown = assertThrows(InvalidDestinationException.class, () -> session.unsubscribe("no such subscription"));
        assertTrue(unknown.getMessage().contains("no durable subscription no such subscription"), unknown::getMessage);
        send(session, queue("fine"), "the connection goes on");
    }

    @Test
    @DisplayName("JMS 7.2: unsubscribing fails while the subscription is in use")
    void unsubscribeInUse() throws Exception {
        Connection connection = named(unique("client"));
        Session session = autoAcknowledge(connection);
        Topic topic = topic("used");
        MessageConsumer consumer = session.createDurableSubscriber(topic, "used");
        assertThrows(JMSException.class, () -> session.unsubscribe("used"));
        send(session, topic, "still subscribed");
        assertEquals("still subscribed", text(receive(consumer)));
        consumer.close();
        session.unsubscribe("used");
        assertThrows(JMSException.class, () -> session.unsubscribe("used"));
    }

    @Test
    @DisplayName("JMS 8.3.3: a durable subscription collects while its subscriber is away")
    void durableSubscription() throws Exception {
        Connection connection = named(unique("client"));
        Session session = autoAcknowledge(connection);
        Topic topic = topic("durable");
        session.createDurableSubscriber(topic, "away").close();
        send(autoAcknowledge(connect()), topic, numbered("m", 3));
        MessageConsumer back = session.createDurableSubscriber(topic, "away");
        assertEquals(List.of("m0", "m1", "m2"), texts(back, 3));
        assertThrows(JMSException.class, () -> session.createDurableSubscriber(topic, "away"), "active twice");
        back.close();
        // Another selector makes it a new subscription: what the old one kept is gone (JMS 8.3.3).
        send(session, topic, "for the old one");
        MessageConsumer changed = session.createDurableSubscriber(topic, "away", "JMSType = 'x'", false);
        send(session, topic, "not selected");
        assertSilent(changed);
        changed.close();
        session.unsubscribe("away");
    }

    @Test
    @DisplayName("JMS 6.1.1: without security any user and password are welcome")
    void noSecurity() throws Exception {
        for (String[] credentials : new String[][] {{null, null}, {"somebody", "secret"}, {"", ""}}) {
            Connection connection = closing(factory().createConnection(credentials[0], credentials[1]));
            connection.start();
            send(autoAcknowledge(connection), queue("anybody"), "m");
        }
    }

    @Test
    @DisplayName("connections come and go without trouble")
    void manyConnections() throws Exception {
        Queue queue = queue("coming.and.going");
        for (int round = 0; round < 50; round++) {
            Connection connection = round % 2 == 0 ? connect() : breakable();
            Session session = autoAcknowledge(connection);
            send(session, queue, "m" + round);
            MessageConsumer consumer = session.createConsumer(queue);
            assertEquals("m" + round, text(receive(consumer)));
            if (round % 2 == 0) {
                connection.close();
            } else {
                // A round trip, so that the acknowledgement, sent without waiting, has arrived.
                send(session, queue("round.trip"), "done");
                breakOff(connection);
            }
        }
    }
}

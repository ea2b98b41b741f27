package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
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
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;
import org.apache.activemq.command.BaseCommand;
import org.apache.activemq.command.Command;
import org.apache.activemq.command.ConnectionControl;
import org.apache.activemq.command.ControlCommand;
import org.apache.activemq.command.FlushCommand;
import org.apache.activemq.command.KeepAliveInfo;
import org.apache.activemq.command.Response;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What is refused, by which exception, and what goes on working afterwards. */
@DisplayName("JMS 3.8, 6.1, 7: selectors, client ids, life cycle and errors")
class ErrorsTest extends JmsTest {

    @ParameterizedTest(name = "{0}")
    @ValueSource(strings = {"a =", "= 1", "a = 'open", "a BETWEEN 1", "a LIKE 5", "a IN ()", "NOT", "a b", "(a = 1",
        "a = 1)", "a LIKE 'x' ESCAPE 'yy'", "1 +", "a IS", "a IN ('x',)", "a = #", "AND a = 1"})
    @DisplayName("JMS 3.8.1: a malformed selector is an InvalidSelectorException")
    void malformedSelector(String selector) throws Exception {
        Session session = autoAcknowledge(connect());
        ActiveMQQueue queue = queue("selector");
        ActiveMQTopic topic = topic("selector");
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
        ActiveMQQueue queue = queue("selector");
        ActiveMQTopic topic = topic("selector");
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
        Connection first = unstarted(factory());
        first.setClientID(id);
        first.start();
        Connection second = unstarted(factory());
        assertThrows(InvalidClientIDException.class, () -> {
            second.setClientID(id);
            second.start();
        });
        send(autoAcknowledge(first), queue("first"), "the first goes on");
        first.close();
        Connection third = unstarted(factory());
        third.setClientID(id);
        third.start();
        send(autoAcknowledge(third), queue("third"), "the id is free again");
    }

    @Test
    @DisplayName("JMS 6.1.5: nothing is delivered before start() and after stop()")
    void startAndStop() throws Exception {
        ActiveMQQueue queue = queue("start");
        send(autoAcknowledge(connect()), queue, "m0");
        ActiveMQConnection connection = unstarted(factory());
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
        ActiveMQQueue queue = queue("stopped");
        send(autoAcknowledge(unstarted(factory())), queue, "m");
        assertEquals("m", text(receive(autoAcknowledge(connect()).createConsumer(queue))));
    }

    @Test
    @DisplayName("JMS 6.1.8, 6.2.15: what is closed answers with IllegalStateException")
    void closedIsIllegalState() throws Exception {
        Connection connection = connect();
        ActiveMQQueue queue = queue("closed");
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
        assertThrows(JMSException.class, () -> session.unsubscribe("no such subscription"));
        send(session, queue("fine"), "the connection goes on");
    }

    @Test
    @DisplayName("JMS 7.2: unsubscribing fails while the subscription is in use")
    void unsubscribeInUse() throws Exception {
        ActiveMQConnection connection = unstarted(factory());
        connection.setClientID(unique("client"));
        connection.start();
        Session session = autoAcknowledge(connection);
        ActiveMQTopic topic = topic("used");
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
        ActiveMQConnection connection = unstarted(factory());
        connection.setClientID(unique("client"));
        connection.start();
        Session session = autoAcknowledge(connection);
        ActiveMQTopic topic = topic("durable");
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
            ActiveMQConnectionFactory factory = factory();
            factory.setUserName(credentials[0]);
            factory.setPassword(credentials[1]);
            Connection connection = unstarted(factory);
            connection.start();
            send(autoAcknowledge(connection), queue("anybody"), "m");
        }
    }

    @Test
    @DisplayName("commands that mean nothing to the broker do not end the connection")
    void unknownCommands() throws Exception {
        ActiveMQConnection connection = unstarted(factory());
        List<Exception> errors = new CopyOnWriteArrayList<>();
        connection.setExceptionListener(errors::add);
        connection.start();
        Session session = autoAcknowledge(connection);
        ControlCommand control = new ControlCommand();
        control.setCommand("no such thing");
        for (Command command : new BaseCommand[] {new FlushCommand(), control, new KeepAliveInfo(),
                new ConnectionControl()}) {
            connection.asyncSendPacket(command);
            ActiveMQQueue queue = queue("goes.on");
            send(session, queue, "m");
            assertEquals("m", text(receive(session.createConsumer(queue))));
        }
        assertEquals(List.of(), errors);
    }

    @Test
    @DisplayName("a command that asks for a response gets one")
    void flushIsAnswered() throws Exception {
        ActiveMQConnection connection = connect();
        Response response = connection.syncSendPacket(new FlushCommand());
        assertNotNull(response);
        assertTrue(!response.isException(), response::toString);
    }

    @Test
    @DisplayName("the broker gives its name and version (JMS 6.1.9), and the client reads them")
    void brokerInfo() throws Exception {
        ActiveMQConnection connection = connect();
        assertNotNull(connection.getBrokerInfo(), "no BrokerInfo came");
        assertNotNull(connection.getBrokerInfo().getBrokerName());
        assertNotNull(connection.getBrokerInfo().getBrokerId());
    }

    @Test
    @DisplayName("connections come and go without trouble")
    void manyConnections() throws Exception {
        ActiveMQQueue queue = queue("coming.and.going");
        for (int round = 0; round < 50; round++) {
            Connection connection = connect();
            Session session = autoAcknowledge(connection);
            send(session, queue, "m" + round);
            MessageConsumer consumer = session.createConsumer(queue);
            assertEquals("m" + round, text(receive(consumer)));
            if (round % 2 == 0) {
                connection.close();
            } else {
                breakOff(connection);
            }
        }
    }
}

package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.ConcurrentLinkedDeque;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.extension.ExtendWith;

/** What tests of every client need: connections that are closed afterwards, names used once, patient receives. */
@ExtendWith({SharedBroker.class, FailureReport.class})
abstract class ClientTest {
    /** How long a message that must come may take. */
    static final long PATIENCE_MS = 10_000;
    /** How long to look out for a message that must not come. */
    static final long SILENCE_MS = 250;

    private final ConcurrentLinkedDeque<Connection> connections = new ConcurrentLinkedDeque<>();

    /** A step of a test that may throw anything. */
    interface Step {
        void run() throws Exception;
    }

    @AfterEach
    final void closeConnections() {
        for (Connection connection : connections) {
            try {
                connection.close();
            } catch (JMSException alreadyBroken) {
                // Tests that break their connection on purpose leave it like this.
            }
        }
        connections.clear();
    }

    /** A started connection to the shared broker, with options of the client's URL such as {@code jms.prefetchPolicy.all=1}. */
    abstract Connection connect(String... options) throws JMSException;

    /** Options of a connection, one more ahead. */
    static String[] with(String first, String... others) {
        List<String> all = new ArrayList<>(List.of(others));
        all.add(0, first);
        return all.toArray(String[]::new);
    }

    final <C extends Connection> C closing(C connection) {
        connections.add(connection);
        return connection;
    }

    /** A name that no other test and no earlier run has used. */
    final String unique(String label) {
        return "test." + getClass().getSimpleName() + "." + label + "." + UUID.randomUUID();
    }

    static Session autoAcknowledge(Connection connection) throws JMSException {
        return connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    static Session transacted(Connection connection) throws JMSException {
        return connection.createSession(true, Session.SESSION_TRANSACTED);
    }

    /** Sends persistent text messages in this order. */
    static void send(Session session, Destination destination, String... texts) throws JMSException {
        MessageProducer producer = session.createProducer(destination);
        producer.setDeliveryMode(DeliveryMode.PERSISTENT);
        for (String text : texts) {
            producer.send(session.createTextMessage(text));
        }
        producer.close();
    }

    /** The texts {@code prefix0} to {@code prefix(count-1)}. */
    static String[] numbered(String prefix, int count) {
        String[] texts = new String[count];
        for (int number = 0; number < count; number++) {
            texts[number] = prefix + number;
        }
        return texts;
    }

    static Message receive(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(PATIENCE_MS);
        assertNotNull(message, () -> "no message within " + PATIENCE_MS + " ms");
        return message;
    }

    static String text(Message message) throws JMSException {
        return ((TextMessage) message).getText();
    }

    /** Receives {@code count} texts, in order of arrival; fewer if they stop coming. */
    static List<String> texts(MessageConsumer consumer, int count) throws JMSException {
        List<String> texts = new ArrayList<>();
        while (texts.size() < count) {
            Message message = consumer.receive(PATIENCE_MS);
            if (message == null) {
                break;
            }
            texts.add(text(message));
        }
        return texts;
    }

    /** As {@link #texts}, each with its delivery count and a star if it is marked as redelivered. */
    static List<String> deliveries(MessageConsumer consumer, int count) throws JMSException {
        List<String> deliveries = new ArrayList<>();
        while (deliveries.size() < count) {
            Message message = consumer.receive(PATIENCE_MS);
            if (message == null) {
                break;
            }
            deliveries.add(delivery(message));
        }
        return deliveries;
    }

    /** For example {@code "m1 1"} at first and {@code "m1 2*"} when redelivered. */
    static String delivery(Message message) throws JMSException {
        return text(message) + " " + message.getIntProperty("JMSXDeliveryCount")
                + (message.getJMSRedelivered() ? "*" : "");
    }

    static void assertSilent(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(SILENCE_MS);
        assertNull(message, "no message was expected");
    }

    /** Asserts that nothing is left for a new consumer of {@code destination}. */
    final void assertEmpty(Destination destination) throws JMSException {
        Connection connection = connect();
        assertSilent(autoAcknowledge(connection).createConsumer(destination));
        connection.close();
    }
}

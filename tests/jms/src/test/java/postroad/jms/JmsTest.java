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
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.extension.ExtendWith;

/** What every test needs: connections that are closed afterwards, names used once, patient receives. */
@ExtendWith({SharedBroker.class, FailureReport.class})
abstract class JmsTest {
    /** How long a message that must come may take. */
    static final long PATIENCE_MS = 10_000;
    /** How long to look out for a message that must not come. */
    static final long SILENCE_MS = 250;
    /** Bounds every wait of the client itself, so that a silent broker is a clear error. */
    private static final String CLIENT_BOUNDS = "jms.connectResponseTimeout=15000&jms.closeTimeout=5000";

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

    static ActiveMQConnectionFactory factoryFor(String url, String... options) {
        String all = String.join("&", options);
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(
                url + (url.contains("?") ? "&" : "?") + CLIENT_BOUNDS + (all.isEmpty() ? "" : "&" + all));
        factory.setTrustAllPackages(true);
        return factory;
    }

    static ActiveMQConnectionFactory factory(String... options) {
        return factoryFor(SharedBroker.url(), options);
    }

    /** A started connection to the shared broker, with URL options such as {@code jms.useAsyncSend=true}. */
    final ActiveMQConnection connect(String... options) throws JMSException {
        ActiveMQConnection connection = unstarted(factory(options));
        connection.start();
        return connection;
    }

    /** A connection that is not started yet; it is closed after the test. */
    final ActiveMQConnection unstarted(ActiveMQConnectionFactory factory) throws JMSException {
        return closing((ActiveMQConnection) factory.createConnection());
    }

    /** A session of a new connection to a broker of the test's own. */
    final Session sessionAt(Broker broker, String... options) throws JMSException {
        ActiveMQConnection connection = unstarted(factoryFor(broker.url(), options));
        connection.start();
        return autoAcknowledge(connection);
    }

    final <C extends Connection> C closing(C connection) {
        connections.add(connection);
        return connection;
    }

    /** Closes the socket without a word to the broker, as a crashed client does. */
    static void breakOff(Connection connection) throws Exception {
        ((ActiveMQConnection) connection).getTransport().stop();
    }

    /** A name that no other test and no earlier run has used. */
    final String unique(String label) {
        return "test." + getClass().getSimpleName() + "." + label + "." + UUID.randomUUID();
    }

    final ActiveMQQueue queue(String label) {
        return new ActiveMQQueue(unique(label));
    }

    final ActiveMQTopic topic(String label) {
        return new ActiveMQTopic(unique(label));
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

package postroad.jms;

import java.util.concurrent.Callable;

import jakarta.jms.Connection;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;

import org.apache.activemq.ActiveMQConnectionFactory;

/** A client with one durable subscription, which it reads at one broker at a time. */
final class Subscriber implements AutoCloseable {
    private final String topic;
    private final String clientId;
    private Connection connection;
    private Session session;
    MessageConsumer consumer;

    Subscriber(String url, String topic) throws Exception {
        this(url, topic, "client of " + topic);
    }

    Subscriber(String url, String topic, String clientId) throws Exception {
        this.topic = topic;
        this.clientId = clientId;
        attach(url);
    }

    void attach(String url) throws Exception {
        connection = new ActiveMQConnectionFactory(url).createConnection();
        connection.setClientID(clientId);
        connection.start();
        session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        consumer = session.createDurableSubscriber(session.createTopic(topic), "kept");
    }

    /** Leaves, and its subscription stays. */
    void leave() throws Exception {
        connection.close();
    }

    /** Ends the subscription. */
    void unsubscribe() throws Exception {
        consumer.close();
        session.unsubscribe("kept");
    }

    @Override
    public void close() throws Exception {
        connection.close();
    }

    /** Whether a link has a durable subscription of the topic at this broker. */
    static boolean isBridged(Broker broker, String topic) throws Exception {
        return broker.command("ctl", "subscriptions", "--json").lines()
                .anyMatch(row -> row.contains("NC-DS_") && row.contains("\"topic\":\"" + topic + "\""));
    }

    static void awaitBridged(String what, boolean wanted, Callable<Boolean> isBridged) throws Exception {
        NetworkTest.eventually(what + (wanted ? " is subscribed" : " has ended"), () -> isBridged.call() == wanted);
    }
}

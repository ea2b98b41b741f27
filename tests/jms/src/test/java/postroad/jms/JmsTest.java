package postroad.jms;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Session;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;

/** What tests of ActiveMQ's client need. */
abstract class JmsTest extends ClientTest {
    /** Bounds every wait of the client itself, so that a silent broker is a clear error. */
    private static final String CLIENT_BOUNDS = "jms.connectResponseTimeout=15000&jms.closeTimeout=5000";

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

    @Override
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

    /** Closes the socket without a word to the broker, as a crashed client does. */
    static void breakOff(Connection connection) throws Exception {
        ((ActiveMQConnection) connection).getTransport().stop();
    }

    final ActiveMQQueue queue(String label) {
        return new ActiveMQQueue(unique(label));
    }

    final ActiveMQTopic topic(String label) {
        return new ActiveMQTopic(unique(label));
    }
}

package postroad.jms;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import org.apache.qpid.jms.JmsConnectionFactory;

/** What tests of the AMQP client need. */
abstract class QpidTest extends ClientTest {
    /** A factory with URI options such as {@code jms.prefetchPolicy.all=0}. */
    static JmsConnectionFactory factory(String... options) {
        return factoryFor(SharedBroker.amqpUrl(), options);
    }

    static JmsConnectionFactory factoryFor(String url, String... options) {
        String all = String.join("&", options);
        String bounds = "?jms.requestTimeout=15000&jms.closeTimeout=5000&amqp.idleTimeout=60000";
        return new JmsConnectionFactory(url + bounds + (all.isEmpty() ? "" : "&" + all));
    }

    @Override
    final Connection connect(String... options) throws JMSException {
        Connection connection = closing(factory(options).createConnection());
        connection.start();
        return connection;
    }
}

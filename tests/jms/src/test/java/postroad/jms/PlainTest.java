package postroad.jms;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;

/**
 * What tests of plain JMS need of the client that they run with: here ActiveMQ's. The modules of Qpid JMS have a class of
 * this name of their own, and the same tests.
 */
abstract class PlainTest extends JmsTest {
    /** What is rolled back or recovered comes again at once. */
    static final String[] AT_ONCE = {
        "jms.redeliveryPolicy.initialRedeliveryDelay=0", "jms.redeliveryPolicy.redeliveryDelay=0"};

    /** A connection with a client id, started; it is closed after the test. */
    final Connection named(String clientId, String... options) throws JMSException {
        Connection connection = unstarted(factory(options));
        connection.setClientID(clientId);
        connection.start();
        return connection;
    }

    /** A connection to a broker of the test's own, started. */
    static Connection open(Broker broker, String... options) throws JMSException {
        Connection connection = factoryFor(broker.url(), options).createConnection();
        connection.start();
        return connection;
    }

    /** A connection that {@link #breakOff} may end. */
    final Connection breakable(String... options) throws Exception {
        return connect(options);
    }
}

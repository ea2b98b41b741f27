package postroad.jms;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import java.util.List;
import org.apache.activemq.ActiveMQSession;

/**
 * What tests of plain JMS need of the client that they run with: here ActiveMQ's. The modules of Qpid JMS have a class of
 * this name of their own, and the same tests.
 */
abstract class PlainTest extends JmsTest {
    /** What is rolled back or recovered comes again at once. */
    static final String[] AT_ONCE = {
        "jms.redeliveryPolicy.initialRedeliveryDelay=0", "jms.redeliveryPolicy.redeliveryDelay=0"};

    /** A producer that does not wait for the broker. */
    static final String UNCONFIRMED = "jms.useAsyncSend=true";

    /** A connection hears of temporary destinations by advisories, or finds out when it sends. */
    static final List<String> HOW_TEMPORARIES_ARE_KNOWN = List.of("jms.watchTopicAdvisories=true", "jms.watchTopicAdvisories=false");

    /** Each message is acknowledged by itself. */
    static final int INDIVIDUAL = ActiveMQSession.INDIVIDUAL_ACKNOWLEDGE;

    /** At a close the client says which messages the application saw, if each is acknowledged by itself. */
    static final boolean SAYS_WHAT_WAS_SEEN = true;

    /** A listener that throws has its message come again as a failed delivery. */
    static final boolean COUNTS_WHAT_A_LISTENER_THROWS = true;

    /** A consumer that is closed gives back at once what was not acknowledged. */
    static final boolean CLOSED_CONSUMER_GIVES_BACK = true;

    /** The first message of a group that a consumer gets says so. */
    static final boolean MARKS_THE_FIRST_OF_A_GROUP = true;

    /** A dead letter has a property that says what happened to it. */
    static final boolean SHOWS_WHY_A_LETTER_IS_DEAD = true;

    /** The order in which the client gives back at a close what it received in this one. */
    static List<String> givenBack(String... received) {
        return List.of(received);
    }

    /** A connection that is not started yet; it is closed after the test. */
    final Connection unstarted() throws JMSException {
        return unstarted(factory());
    }

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

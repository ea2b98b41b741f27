package postroad.jms;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Queue;
import jakarta.jms.Topic;
import java.net.URI;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsQueue;
import org.apache.qpid.jms.JmsTopic;
import org.junit.jupiter.api.AfterEach;

/** What tests of plain JMS need of the client that they run with: here Qpid's. */
abstract class PlainTest extends QpidTest {
    /** What is rolled back or recovered comes again at once, without being asked to. */
    static final String[] AT_ONCE = {};

    /** A producer that does not wait for the broker. */
    static final String UNCONFIRMED = "jms.forceAsyncSend=true";

    /** A connection finds out when it sends. */
    static final List<String> HOW_TEMPORARIES_ARE_KNOWN = List.of("");

    /** Each message is acknowledged by itself: the client keeps its name for this mode to itself. */
    static final int INDIVIDUAL = 101;

    /** At the end of a session in mode {@link #INDIVIDUAL} the client says nothing of what the application saw: nothing counts. */
    static final boolean SAYS_WHAT_WAS_SEEN = false;

    /** The client answers what a listener throws with the outcome released, which does not count. */
    static final boolean COUNTS_WHAT_A_LISTENER_THROWS = false;

    /** The client keeps a closed consumer's link until all that it received is acknowledged, as it still may be. */
    static final boolean CLOSED_CONSUMER_GIVES_BACK = false;

    /** The mark is ActiveMQ's own. */
    static final boolean MARKS_THE_FIRST_OF_A_GROUP = false;

    /** It stands in the message annotations, which JMS does not show. */
    static final boolean SHOWS_WHY_A_LETTER_IS_DEAD = false;

    /** The client settles at a close, the newest first, and each goes on to whoever waits. */
    static List<String> givenBack(String... received) {
        List<String> back = new ArrayList<>(List.of(received));
        Collections.reverse(back);
        return back;
    }

    private final Map<Connection, Proxy> proxies = new ConcurrentHashMap<>();

    @AfterEach
    final void closeProxies() throws Exception {
        for (Proxy proxy : proxies.values()) {
            proxy.close();
        }
    }

    final Queue queue(String label) {
        return new JmsQueue(unique(label));
    }

    final Topic topic(String label) {
        return new JmsTopic(unique(label));
    }

    /** A connection that is not started yet; it is closed after the test. */
    final Connection unstarted() throws JMSException {
        return closing(factory().createConnection());
    }

    /** A connection with a client id, started; it is closed after the test. */
    final Connection named(String clientId, String... options) throws JMSException {
        Connection connection = closing(factory(options).createConnection());
        connection.setClientID(clientId);
        connection.start();
        return connection;
    }

    /** A connection to a broker of the test's own, started. */
    static Connection open(Broker broker, String... options) throws JMSException {
        Connection connection = factoryFor(broker.amqpUrl(), options).createConnection();
        connection.start();
        return connection;
    }

    /** A connection that {@link #breakOff} may end: the client itself closes its socket in no other way than well. */
    final Connection breakable(String... options) throws Exception {
        URI broker = URI.create(SharedBroker.amqpUrl());
        Proxy proxy = new Proxy(broker.getHost(), broker.getPort());
        JmsConnectionFactory factory = factoryFor("amqp://127.0.0.1:" + proxy.port(), options);
        Connection connection = closing(factory.createConnection());
        proxies.put(connection, proxy);
        connection.start();
        return connection;
    }

    /** Closes the socket without a word to the broker, as a crashed client does. */
    final void breakOff(Connection connection) throws Exception {
        proxies.get(connection).cut();
    }
}

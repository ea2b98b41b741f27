package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.util.List;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** AMQP by TLS (amqps), inside of WebSockets (amqpws), and both (amqpwss). */
@NeedsOwnBroker
class QpidTlsTest extends QpidTest {
    private static Certificates certificates;
    private static Broker broker;
    private static Broker strict;

    @BeforeAll
    static void launch() throws Exception {
        certificates = new Certificates();
        broker = Broker.launch("amqps", certificates.configuration("none"));
        strict = Broker.launch("amqps-strict", certificates.configuration("required"));
    }

    @AfterAll
    static void close() throws Exception {
        broker.close();
        strict.close();
    }

    /** The options of a client that trusts {@code trusted}, and shows {@code own} if it is not null. */
    private static String options(String trusted, String own) {
        String store = "&transport.%sStoreLocation=%s&transport.%sStorePassword=" + Certificates.PASSWORD;
        return store.formatted("trust", certificates.file(trusted + "-trust.p12"), "trust")
                + (own == null ? "" : store.formatted("key", certificates.file(own + ".p12"), "key"));
    }

    private Connection connect(String url, String options) throws JMSException {
        String bounds = "?jms.requestTimeout=15000&jms.connectTimeout=15000&jms.closeTimeout=5000";
        Connection connection = closing(new JmsConnectionFactory(url + bounds + options).createConnection());
        connection.start();
        return connection;
    }

    private void roundTrip(Connection connection) throws JMSException {
        Session session = autoAcknowledge(connection);
        Queue queue = session.createQueue(unique("round"));
        MessageConsumer consumer = session.createConsumer(queue);
        String large = "x".repeat(3_000_000);
        send(session, queue, "a", large, "b");
        assertEquals(List.of("a", large, "b"), texts(consumer, 3));
    }

    @Test
    void messagesPassBothWays() throws Exception {
        roundTrip(connect(broker.amqpsUrl(), options("broker", null)));
    }

    @Test
    void messagesPassInsideOfWebSocketsToo() throws Exception {
        roundTrip(connect(broker.amqpwsUrl(), ""));
        roundTrip(connect(broker.amqpwssUrl(), options("broker", null)));
        roundTrip(connect(broker.amqpUrl(), ""));
    }

    @Test
    void aClientWithoutAGoodCertificateIsNotServedWhereOneIsRequired() throws Exception {
        roundTrip(connect(strict.amqpsUrl(), options("broker", "client")));
        for (String own : new String[] {null, "stranger"}) {
            assertThrows(JMSException.class, () -> connect(strict.amqpsUrl(), options("broker", own)), "certificate: " + own);
        }
        assertTrue(strict.isAlive());
    }

    @Test
    void aClientThatDoesNotTrustTheBrokerEndsTheHandshakeAlone() throws Exception {
        Connection good = connect(broker.amqpsUrl(), options("broker", null));
        assertThrows(JMSException.class, () -> connect(broker.amqpsUrl(), options("stranger", null)));
        roundTrip(good);
    }
}

package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import java.security.SecureRandom;
import java.util.List;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQSslConnectionFactory;
import org.apache.activemq.command.ActiveMQQueue;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** OpenWire by TLS. */
@NeedsOwnBroker
@DisplayName("TLS, by OpenWire")
class TlsTest extends JmsTest {
    private static Certificates certificates;
    private static Broker broker;
    private static Broker strict;

    @BeforeAll
    static void launch() throws Exception {
        certificates = new Certificates();
        broker = Broker.launch("tls", certificates.configuration("none"));
        strict = Broker.launch("tls-strict", certificates.configuration("required"));
    }

    @AfterAll
    static void close() throws Exception {
        broker.close();
        strict.close();
    }

    /** A started connection of a client that trusts {@code trusted}, and shows {@code own} if it is not null. */
    private ActiveMQConnection connect(Broker to, String trusted, String own) throws Exception {
        ActiveMQSslConnectionFactory factory =
                new ActiveMQSslConnectionFactory(to.tlsUrl() + "?jms.connectResponseTimeout=15000&jms.closeTimeout=5000");
        factory.setTrustStore(certificates.file(trusted + "-trust.p12"));
        factory.setTrustStorePassword(Certificates.PASSWORD);
        factory.setTrustStoreType("PKCS12");
        if (own != null) {
            factory.setKeyStore(certificates.file(own + ".p12"));
            factory.setKeyStorePassword(Certificates.PASSWORD);
            factory.setKeyStoreType("PKCS12");
        }
        ActiveMQConnection connection = closing((ActiveMQConnection) factory.createConnection());
        connection.start();
        return connection;
    }

    @Test
    void messagesOfEverySizePassBothWays() throws Exception {
        Connection connection = connect(broker, "broker", null);
        Session session = autoAcknowledge(connection);
        ActiveMQQueue queue = queue("sizes");
        MessageConsumer consumer = session.createConsumer(queue);
        byte[] large = new byte[5_000_000];
        new SecureRandom().nextBytes(large);
        for (int size : List.of(0, 1, 16_384, 16_385, large.length)) {
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(large, 0, size);
            session.createProducer(queue).send(message);
            BytesMessage received = (BytesMessage) receive(consumer);
            byte[] got = new byte[(int) received.getBodyLength()];
            received.readBytes(got);
            assertEquals(new java.math.BigInteger(1, java.util.Arrays.copyOf(large, size)), new java.math.BigInteger(1, got));
            assertEquals(size, got.length);
        }
        // What comes by TLS can be read without it, and the other way round.
        send(session, queue, "sealed");
        Connection open = unstarted(factoryFor(broker.url()));
        open.start();
        consumer.close();
        assertEquals(List.of("sealed"), texts(autoAcknowledge(open).createConsumer(queue), 1));
    }

    @Test
    void aClientWithoutAGoodCertificateIsNotServedWhereOneIsRequired() throws Exception {
        send(autoAcknowledge(connect(strict, "broker", "client")), queue("good"), "a");
        for (String own : new String[] {null, "stranger"}) {
            assertThrows(JMSException.class, () -> connect(strict, "broker", own), "certificate: " + own);
        }
        assertTrue(strict.isAlive());
    }

    @Test
    void aClientThatDoesNotTrustTheBrokerEndsTheHandshakeAlone() throws Exception {
        Connection good = connect(broker, "broker", null);
        assertThrows(JMSException.class, () -> connect(broker, "stranger", null));
        ActiveMQQueue queue = queue("still");
        send(autoAcknowledge(good), queue, "here");
        assertEquals(List.of("here"), texts(autoAcknowledge(good).createConsumer(queue), 1));
    }
}

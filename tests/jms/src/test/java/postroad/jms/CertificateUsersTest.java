package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.JMSException;
import jakarta.jms.JMSSecurityException;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQSslConnectionFactory;
import org.apache.activemq.command.ActiveMQQueue;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Client certificates that stand for users, by OpenWire. */
@NeedsOwnBroker
@DisplayName("Users with certificates, by OpenWire")
class CertificateUsersTest extends JmsTest {
    /** For a certificate with the subject CN=alice,O=Orders. */
    static final String RULES = """
            [[security.certificate]]
            subject = "CN=mallory"
            user = "root"
            [[security.certificate]]
            subject = "CN=alice, O=Orders"
            user = "clerk"
            groups = ["orders"]
            [[security.group]]
            name = "orders"
            [[security.permission]]
            groups = ["orders"]
            destinations = ["queue://orders.>"]
            actions = ["read", "write", "create"]
            """;

    private Certificates certificates;
    private Broker broker;

    @BeforeEach
    void launch() throws Exception {
        certificates = new Certificates();
        broker = Broker.launch("certificates", certificates.configuration("optional") + RULES);
    }

    @AfterEach
    void close() throws Exception {
        broker.close();
    }

    private ActiveMQConnection connect(boolean hasCertificate, String user, String password) throws Exception {
        ActiveMQSslConnectionFactory factory =
                new ActiveMQSslConnectionFactory(broker.tlsUrl() + "?jms.connectResponseTimeout=15000&jms.closeTimeout=5000");
        factory.setTrustStore(certificates.file("broker-trust.p12"));
        factory.setTrustStorePassword(Certificates.PASSWORD);
        factory.setTrustStoreType("PKCS12");
        if (hasCertificate) {
            factory.setKeyStore(certificates.file("client.p12"));
            factory.setKeyStorePassword(Certificates.PASSWORD);
            factory.setKeyStoreType("PKCS12");
        }
        ActiveMQConnection connection = closing((ActiveMQConnection) factory.createConnection(user, password));
        connection.start();
        return connection;
    }

    private void roundTrip(ActiveMQConnection connection, String name) throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue(name);
        send(autoAcknowledge(connection), queue, "a");
        assertEquals(List.of("a"), texts(autoAcknowledge(connection).createConsumer(queue), 1));
    }

    @Test
    void aCertificateStandsForItsUserWithTheGroupsOfItsRule() throws Exception {
        ActiveMQConnection connection = connect(true, null, null);
        roundTrip(connection, "orders.new");
        JMSException refused = assertThrows(JMSException.class, () -> roundTrip(connection, "bills"));
        assertTrue(refused.getMessage().contains("clerk"), refused.getMessage());
        assertThrows(JMSSecurityException.class, () -> connect(false, null, null), "no certificate");
        assertThrows(JMSSecurityException.class, () -> connect(false, "clerk", ""), "a name alone");
        assertThrows(JMSSecurityException.class, () -> connect(true, "root", "guess"), "a certificate is no password");
    }

    @Test
    void aConnectionEndsWhenItsCertificateStandsForItsUserNoMore() throws Exception {
        ActiveMQConnection connection = connect(true, null, null);
        CountDownLatch ended = new CountDownLatch(1);
        connection.setExceptionListener(exception -> ended.countDown());
        roundTrip(connection, "orders.new");
        broker.configure(certificates.configuration("optional") + RULES.replace("CN=alice", "CN=bob"));
        broker.reload();
        assertTrue(ended.await(15, TimeUnit.SECONDS), "it goes on");
        assertThrows(JMSSecurityException.class, () -> connect(true, null, null), "no rule fits");
    }
}

package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.util.List;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** SASL: users with passwords, told or proved, and certificates. */
@NeedsOwnBroker
class QpidLoginTest extends QpidTest {
    private static Certificates certificates;
    private static Broker broker;
    private static Tokens tokens;
    private static Broker federated;
    private static Broker withoutUsers;
    private static Broker byRules;

    @BeforeAll
    static void launch() throws Exception {
        certificates = new Certificates();
        broker = Broker.launch("sasl", Broker.usersConfiguration("alice", "wonder") + certificates.configuration("optional"));
        tokens = new Tokens();
        federated = Broker.launch("sasl-oidc", Broker.usersConfiguration("alice", "wonder") + tokens.configuration());
        withoutUsers = Broker.launch("sasl-oidc-alone", tokens.configuration());
        byRules = Broker.launch("sasl-certificates", certificates.configuration("optional") + """
                [[security.certificate]]
                common_name = "*"
                user = "app.{}"
                [[security.permission]]
                users = ["app.alice"]
                destinations = ["queue://orders.>"]
                actions = ["read", "write", "create"]
                """);
    }

    @AfterAll
    static void close() throws Exception {
        broker.close();
        federated.close();
        withoutUsers.close();
        byRules.close();
    }

    private Connection connect(String url, String user, String password, String options) throws JMSException {
        String bounds = "?jms.requestTimeout=15000&jms.connectTimeout=15000&jms.closeTimeout=5000";
        JmsConnectionFactory factory = new JmsConnectionFactory(user, password, url + bounds + options);
        Connection connection = closing(factory.createConnection());
        connection.start();
        return connection;
    }

    private static String mechanism(String name) {
        return name.isEmpty() ? "" : "&amqp.saslMechanisms=" + name;
    }

    private void roundTrip(Connection connection) throws JMSException {
        roundTrip(connection, "");
    }

    private void roundTrip(Connection connection, String prefix) throws JMSException {
        Session session = autoAcknowledge(connection);
        Queue queue = session.createQueue(prefix + unique("round"));
        send(session, queue, "a");
        assertEquals(List.of("a"), texts(session.createConsumer(queue), 1));
    }

    @Test
    void aUserWithItsPasswordIsLetInByEveryMechanism() throws Exception {
        for (String name : List.of("", "SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")) {
            roundTrip(connect(broker.amqpUrl(), "alice", "wonder", mechanism(name)));
        }
    }

    @Test
    void aTokenOfTheIdentityProviderTakesThePlaceOfThePassword() throws Exception {
        for (String algorithm : Tokens.ALGORITHMS) {
            for (String name : List.of("PLAIN", "XOAUTH2")) {
                roundTrip(connect(federated.amqpUrl(), "ann", tokens.sign(algorithm, "ann", 600), mechanism(name)));
                assertThrows(JMSSecurityException.class,
                        () -> connect(federated.amqpUrl(), "ann", tokens.sign(algorithm, "ann", -60), mechanism(name)), name);
            }
        }
        roundTrip(connect(withoutUsers.amqpUrl(), "ann", tokens.sign("RS256", "ann", 600), ""));
        for (String name : List.of("", "PLAIN", "XOAUTH2", "SCRAM-SHA-256")) {
            roundTrip(connect(federated.amqpUrl(), "alice", "wonder", mechanism(name)));
        }
    }

    @Test
    void nobodyElseIs() throws Exception {
        for (String name : List.of("", "SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")) {
            for (String[] wrong : new String[][] {{"alice", "land"}, {"bob", "wonder"}}) {
                assertThrows(JMSSecurityException.class,
                        () -> connect(broker.amqpUrl(), wrong[0], wrong[1], mechanism(name)), name + " " + wrong[0]);
            }
        }
        assertThrows(JMSSecurityException.class, () -> connect(broker.amqpUrl(), null, null, ""), "nobody");
        assertThrows(JMSException.class, () -> connect(broker.amqpUrl(), null, null, "&amqp.saslLayer=false"), "no SASL");
        roundTrip(connect(broker.amqpUrl(), "alice", "wonder", ""));
    }

    @Test
    void aCertificateIsAsGoodAsAPassword() throws Exception {
        String store = "&transport.%sStoreLocation=%s&transport.%sStorePassword=" + Certificates.PASSWORD;
        String trust = store.formatted("trust", certificates.file("broker-trust.p12"), "trust");
        String key = store.formatted("key", certificates.file("client.p12"), "key");
        roundTrip(connect(broker.amqpsUrl(), null, null, trust + key + mechanism("EXTERNAL")));
        roundTrip(connect(broker.amqpsUrl(), "alice", "wonder", trust));
        assertThrows(JMSSecurityException.class,
                () -> connect(broker.amqpsUrl(), null, null, trust + mechanism("EXTERNAL")), "no certificate");
        Connection app = connect(byRules.amqpsUrl(), null, null, trust + key + mechanism("EXTERNAL"));
        roundTrip(app, "orders.");
        JMSException refused = assertThrows(JMSException.class, () -> roundTrip(app));
        assertTrue(refused.getMessage().contains("app.alice"), refused.getMessage());
        assertThrows(JMSSecurityException.class, () -> connect(byRules.amqpsUrl(), "app.alice", "", trust + mechanism("PLAIN")));
    }
}

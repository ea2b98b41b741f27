package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSSecurityException;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.command.ActiveMQQueue;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Users with passwords, by OpenWire. */
@NeedsOwnBroker
@DisplayName("Users, by OpenWire")
class LoginTest extends JmsTest {
    private static Broker broker;
    private static Broker lax;
    private static Tokens tokens;
    private static Broker federated;

    @BeforeAll
    static void launch() throws Exception {
        broker = Broker.launch("users", Broker.usersConfiguration("alice", "wonder"));
        lax = Broker.launch("users-lax", Broker.usersConfiguration("alice", "wonder") + "anonymous = true\n");
        tokens = new Tokens();
        federated = Broker.launch("users-oidc", Broker.usersConfiguration("alice", "wonder") + tokens.configuration());
    }

    @AfterAll
    static void close() throws Exception {
        broker.close();
        lax.close();
        federated.close();
    }

    private Connection connect(Broker to, String user, String password) throws Exception {
        ActiveMQConnectionFactory factory = factoryFor(to.url());
        Connection connection = closing(factory.createConnection(user, password));
        connection.start();
        return connection;
    }

    private void roundTrip(Connection connection) throws Exception {
        ActiveMQQueue queue = queue("round");
        send(autoAcknowledge(connection), queue, "a");
        assertEquals(List.of("a"), texts(autoAcknowledge(connection).createConsumer(queue), 1));
    }

    @Test
    void aUserWithItsPasswordIsLetIn() throws Exception {
        roundTrip(connect(broker, "alice", "wonder"));
        roundTrip(connect(lax, "alice", "wonder"));
    }

    @Test
    void nobodyElseIs() throws Exception {
        for (String[] wrong : new String[][] {{"alice", "land"}, {"alice", null}, {"bob", "wonder"}, {null, null}, {"", "wonder"}}) {
            assertThrows(JMSSecurityException.class, () -> connect(broker, wrong[0], wrong[1]), String.join(":", wrong[0], wrong[1]));
        }
        roundTrip(connect(broker, "alice", "wonder"));
    }

    @Test
    void thoseWithoutANameAreIfTheConfigurationSaysSo() throws Exception {
        roundTrip(connect(lax, null, null));
        assertThrows(JMSSecurityException.class, () -> connect(lax, "alice", "land"));
    }

    @Test
    void aTokenTakesThePlaceOfThePasswordUntilItIsRevoked() throws Exception {
        String token = broker.command("ctl", "token", "new", "alice", "--scope", "messages").strip();
        Connection connection = connect(broker, "alice", token);
        roundTrip(connection);
        assertThrows(JMSSecurityException.class, () -> connect(broker, "bob", token));
        CountDownLatch ended = new CountDownLatch(1);
        connection.setExceptionListener(exception -> ended.countDown());
        broker.command("ctl", "token", "revoke", token.split("_")[1]);
        assertThrows(JMSSecurityException.class, () -> connect(broker, "alice", token));
        assertTrue(ended.await(5, TimeUnit.SECONDS), "the connection goes on");
    }

    @Test
    void aTokenOfTheIdentityProviderTakesThePlaceOfThePasswordUntilItExpires() throws Exception {
        for (String algorithm : Tokens.ALGORITHMS) {
            roundTrip(connect(federated, "anything", tokens.sign(algorithm, "ann", 600)));
            assertThrows(JMSSecurityException.class, () -> connect(federated, "ann", tokens.sign(algorithm, "ann", -60)), algorithm);
            assertThrows(JMSSecurityException.class, () -> connect(federated, "ann", new Tokens().sign(algorithm, "ann", 600)), algorithm);
        }
        roundTrip(connect(federated, "alice", "wonder"));
        // The provider's clock may be 30 seconds behind.
        Connection connection = connect(federated, "ann", tokens.sign("ES256", "ann", -26));
        CountDownLatch ended = new CountDownLatch(1);
        connection.setExceptionListener(exception -> ended.countDown());
        roundTrip(connection);
        assertTrue(ended.await(60, TimeUnit.SECONDS), "the connection goes on");
    }

    @Test
    void guessingTakesTimeAndHoldsUpNobodyElse() throws Exception {
        try (Clients clients = new Clients()) {
            for (int guesser = 0; guesser < 20; guesser++) {
                clients.run(() -> assertThrows(JMSSecurityException.class, () -> connect(broker, "mallory", "guess")));
            }
            long began = System.nanoTime();
            roundTrip(connect(lax, null, null));
            roundTrip(connect(broker, "alice", "wonder"));
            clients.join(30);
            assertTrue(System.nanoTime() - began > 900_000_000L, "a guess was answered at once");
        }
    }
}

package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

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

/** Users of a directory (LDAP), by AMQP. */
@NeedsOwnBroker
class QpidDirectoryTest extends QpidTest {
    private static DirectoryServer directory;
    private static Broker broker;

    @BeforeAll
    static void launch() throws Exception {
        directory = new DirectoryServer();
        broker = Broker.launch("sasl-ldap", Broker.usersConfiguration("alice", "wonder") + directory.configuration("ldaps", 3_000));
    }

    @AfterAll
    static void close() throws Exception {
        broker.close();
        directory.close();
    }

    private Connection connect(String user, String password) throws JMSException {
        String url = broker.amqpUrl() + "?jms.requestTimeout=15000&jms.connectTimeout=15000&jms.closeTimeout=5000";
        Connection connection = closing(new JmsConnectionFactory(user, password, url).createConnection());
        connection.start();
        return connection;
    }

    private void roundTrip(Connection connection) throws JMSException {
        Session session = autoAcknowledge(connection);
        Queue queue = session.createQueue("orders." + unique("round"));
        send(session, queue, "a");
        assertEquals(List.of("a"), texts(session.createConsumer(queue), 1));
    }

    @Test
    void theDirectoryChecksPasswordsAndItsGroupsHavePermissions() throws Exception {
        roundTrip(connect("ann", "secret-ann"));
        roundTrip(connect("alice", "wonder"));
        for (String[] wrong : new String[][] {{"ann", "guess"}, {"ann", ""}, {"zoe", "secret-ann"}, {"alice", "secret-ann"}}) {
            assertThrows(JMSSecurityException.class, () -> connect(wrong[0], wrong[1]), wrong[0]);
        }
        assertThrows(JMSException.class, () -> roundTrip(connect("bob", "secret-bob")));
    }
}

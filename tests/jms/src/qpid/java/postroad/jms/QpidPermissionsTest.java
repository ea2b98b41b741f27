package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.util.List;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Permissions of users, by AMQP. */
@NeedsOwnBroker
class QpidPermissionsTest extends QpidTest {
    private static Broker broker;

    @BeforeAll
    static void launch() throws Exception {
        broker = Broker.launch("permissions-amqp", Broker.usersConfiguration("ann", "wonder", "bob", "land") + """
                [[security.permission]]
                users = ["ann"]
                destinations = ["queue://orders.>"]
                actions = ["read", "write"]

                [[security.permission]]
                users = ["bob"]
                destinations = ["queue://orders.>"]
                actions = ["read"]
                """);
    }

    @AfterAll
    static void close() throws Exception {
        broker.close();
    }

    private Session session(String user, String password) throws JMSException {
        String bounds = "?jms.requestTimeout=15000&jms.connectTimeout=15000&jms.closeTimeout=5000";
        Connection connection = closing(new JmsConnectionFactory(user, password, broker.amqpUrl() + bounds).createConnection());
        connection.start();
        return autoAcknowledge(connection);
    }

    @Test
    void aUserDoesWhatIsGrantedAndNothingElse() throws Exception {
        Session ann = session("ann", "wonder");
        Session bob = session("bob", "land");
        Queue orders = ann.createQueue("orders.amqp");
        send(ann, orders, "one");
        assertThrows(JMSException.class, () -> send(bob, orders, "two"));
        MessageConsumer reader = bob.createConsumer(orders);
        assertEquals(List.of("one"), texts(reader, 1));
        reader.close();
        assertThrows(JMSSecurityException.class, () -> ann.createConsumer(ann.createQueue("secret")));
        send(ann, orders, "three");
        assertEquals(List.of("three"), texts(ann.createConsumer(orders), 1));
    }
}

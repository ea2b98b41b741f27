package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import java.util.List;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.command.ActiveMQQueue;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Permissions of users, by OpenWire. */
@NeedsOwnBroker
@DisplayName("Permissions, by OpenWire")
class PermissionsTest extends JmsTest {
    private static Broker broker;

    @BeforeAll
    static void launch() throws Exception {
        broker = Broker.launch("permissions", Broker.usersConfiguration("ann", "wonder", "bob", "land", "root", "all") + """
                [[security.group]]
                name = "billing"
                users = ["bob"]

                [[security.permission]]
                users = ["ann"]
                destinations = ["queue://orders.>"]
                actions = ["read", "write"]

                [[security.permission]]
                groups = ["billing"]
                destinations = ["queue://orders.>"]
                actions = ["read"]

                [[security.permission]]
                users = ["root"]
                destinations = ["queue://>", "topic://>"]
                actions = ["read", "write", "create", "manage", "admin"]
                """);
    }

    @AfterAll
    static void close() throws Exception {
        broker.close();
    }

    private Connection connect(String user, String password) throws Exception {
        ActiveMQConnectionFactory factory = factoryFor(broker.url());
        Connection connection = closing(factory.createConnection(user, password));
        connection.start();
        return connection;
    }

    @Test
    void aUserDoesWhatIsGrantedAndNothingElse() throws Exception {
        Session ann = autoAcknowledge(connect("ann", "wonder"));
        Session bob = autoAcknowledge(connect("bob", "land"));
        ActiveMQQueue orders = new ActiveMQQueue("orders.a");
        send(ann, orders, "one");
        JMSException refused = assertThrows(JMSSecurityException.class, () -> send(bob, orders, "two"));
        assertTrue(refused.getMessage().contains("user bob has no permission to write queue://orders.a"), refused.getMessage());
        MessageConsumer reader = bob.createConsumer(orders);
        assertEquals(List.of("one"), texts(reader, 1));
        reader.close();
        ActiveMQQueue secret = new ActiveMQQueue("secret");
        assertThrows(JMSSecurityException.class, () -> send(ann, secret, "three"));
        assertThrows(JMSSecurityException.class, () -> ann.createConsumer(secret));
        assertThrows(JMSSecurityException.class, () -> ann.createConsumer(ann.createTopic("orders.a")));
        assertThrows(JMSSecurityException.class, () -> ann.createConsumer(new ActiveMQQueue(">")));
        // The connection goes on, and so does what is permitted.
        send(ann, orders, "four");
        assertEquals(List.of("four"), texts(ann.createConsumer(new ActiveMQQueue("orders.>")), 1));
    }

    @Test
    void transactionsSkipNoCheck() throws Exception {
        Connection connection = connect("ann", "wonder");
        Session ann = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageProducer producer = ann.createProducer(null);
        producer.send(new ActiveMQQueue("orders.t"), ann.createTextMessage("in"));
        assertThrows(JMSException.class, () -> {
            producer.send(new ActiveMQQueue("secret"), ann.createTextMessage("out"));
            ann.commit();
        });
        Session root = autoAcknowledge(connect("root", "all"));
        for (String name : List.of("secret", "orders.t")) {
            assertTrue(root.createConsumer(new ActiveMQQueue(name)).receive(200) == null, "a part was committed: " + name);
        }
    }

    @Test
    void requestsAndRepliesNeedNoPermissionForTemporaryQueues() throws Exception {
        Session ann = autoAcknowledge(connect("ann", "wonder"));
        Session bob = autoAcknowledge(connect("bob", "land"));
        TemporaryQueue replies = ann.createTemporaryQueue();
        send(bob, replies, "reply");
        assertEquals(List.of("reply"), texts(ann.createConsumer(replies), 1));
    }

    @Test
    void deletingAQueueNeedsManage() throws Exception {
        ActiveMQConnection ann = (ActiveMQConnection) connect("ann", "wonder");
        Queue queue = new ActiveMQQueue("orders.kept");
        send(autoAcknowledge(ann), queue, "one");
        assertThrows(JMSException.class, () -> ann.destroyDestination((ActiveMQQueue) queue));
        Session root = autoAcknowledge(connect("root", "all"));
        assertEquals(List.of("one"), texts(root.createConsumer(queue), 1));
    }
}

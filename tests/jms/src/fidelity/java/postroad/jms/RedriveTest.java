package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import java.util.Collections;
import java.util.List;
import java.util.function.Function;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Dead letters that go back inside the broker, over several partitions, in the form in which each was sent. */
@DisplayName("Redrive inside the broker")
class RedriveTest {
    private static final long PATIENCE_MS = 10_000;
    private static final byte[] BODY = {0, -1, 127, 10, 13, 64};
    private static final int REJECTED = 2;
    private static final String CONFIGURATION = """
            [runtime]
            partitions = 3
            [[policy]]
            destination = "queue://soon.>"
            dead_letter_queue = "DLQ.soon"
            [[policy]]
            destination = "queue://DLQ.soon"
            redrive_after_ms = 100
            redrive_rounds_max = 1
            """;

    private static Broker broker;

    enum Client {
        OPENWIRE(at -> new ActiveMQConnectionFactory(at.url() + "?jms.redeliveryPolicy.maximumRedeliveries=0")),
        AMQP(at -> new JmsConnectionFactory(at.amqpUrl()));

        private final Function<Broker, ConnectionFactory> factory;

        Client(Function<Broker, ConnectionFactory> factory) {
            this.factory = factory;
        }

        Connection connect() throws JMSException {
            Connection connection = factory.apply(broker).createConnection();
            connection.start();
            return connection;
        }

        /** Gives a message up for good, and returns it. */
        Message bury(Connection connection, String queue) throws JMSException {
            boolean transacted = this == OPENWIRE;
            Session session = connection.createSession(transacted,
                    transacted ? Session.SESSION_TRANSACTED : Session.CLIENT_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
            Message message = consumer.receive(PATIENCE_MS);
            assertNotNull(message, "nothing came from " + queue);
            if (transacted) {
                session.rollback();
                assertNull(consumer.receive(200), "it is not delivered again");
            } else {
                message.setIntProperty("JMS_AMQP_ACK_TYPE", REJECTED);
                message.acknowledge();
            }
            session.close();
            return message;
        }
    }

    @BeforeAll
    static void launch() throws Exception {
        broker = Broker.launch("redrive", CONFIGURATION);
    }

    @AfterAll
    static void close() throws Exception {
        broker.close();
    }

    private static BytesMessage send(Connection connection, String queue) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(BODY);
        message.setShortProperty("number", (short) 7);
        message.setJMSCorrelationID("with");
        session.createProducer(session.createQueue(queue)).send(message);
        session.close();
        return message;
    }

    private static void assertAsSent(BytesMessage sent, Message received) throws JMSException {
        assertNotNull(received, "it did not come back");
        byte[] body = new byte[(int) ((BytesMessage) received).getBodyLength()];
        ((BytesMessage) received).readBytes(body);
        assertArrayEquals(BODY, body);
        assertEquals(sent.getJMSMessageID(), received.getJMSMessageID());
        assertEquals(sent.getJMSDestination().toString(), received.getJMSDestination().toString());
        assertEquals((short) 7, received.getObjectProperty("number"));
        assertEquals("with", received.getJMSCorrelationID());
        assertEquals(1, received.getIntProperty("JMSXDeliveryCount"));
        assertFalse(received.getJMSRedelivered());
        List<?> names = Collections.list(received.getPropertyNames());
        assertFalse(names.contains("dlqDeliveryFailureCause"), names.toString());
        assertFalse(names.contains("JMS_AMQP_MA_x-opt-original-address"), names.toString());
    }

    @ParameterizedTest
    @EnumSource
    @DisplayName("an operator sends back what was selected, as it was sent")
    void byCommand(Client client) throws Exception {
        String queue = "redrive." + client;
        try (Connection connection = client.connect()) {
            BytesMessage sent = send(connection, queue);
            client.bury(connection, queue);
            String none = broker.command("redrive", "--origin", queue, "--selector", "number = 8");
            assertTrue(none.contains("0 sent back"), none);
            String said = broker.command("redrive", "--origin", queue, "--selector", "number = 7", "--max", "5");
            assertTrue(said.contains("1 sent back"), said);
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            assertAsSent(sent, session.createConsumer(session.createQueue(queue)).receive(PATIENCE_MS));
        }
    }

    @ParameterizedTest
    @EnumSource
    @DisplayName("by policy it comes back by itself, once")
    void byPolicy(Client client) throws Exception {
        String queue = "soon." + client;
        try (Connection connection = client.connect()) {
            BytesMessage sent = send(connection, queue);
            client.bury(connection, queue);
            assertAsSent(sent, client.bury(connection, queue));
            Session again = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            assertNull(again.createConsumer(again.createQueue(queue)).receive(3000), "it stays");
            Message dead = again.createConsumer(again.createQueue("DLQ.soon")).receive(PATIENCE_MS);
            assertEquals(sent.getJMSMessageID(), dead.getJMSMessageID());
        }
    }
}

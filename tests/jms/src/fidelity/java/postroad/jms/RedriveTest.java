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
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.io.IOException;
import java.util.Collections;
import java.util.Enumeration;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
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

    @Test
    @DisplayName("killed in the middle, a message is back or still a dead letter, and never both")
    void killed() throws Exception {
        int count = 5000;
        Random random = new Random(7);
        try (Broker own = Broker.launch("redrive-killed", "[runtime]\npartitions = 3\n")) {
            ConnectionFactory factory = new ActiveMQConnectionFactory(own.url());
            buryAll(factory, count);
            int left = count;
            int killedMidway = 0;
            for (int kill = 0; kill < 8 && left > 0; kill++) {
                CompletableFuture<Void> asking = CompletableFuture.runAsync(() -> {
                    try {
                        own.command("redrive");
                    } catch (IOException | InterruptedException killed) {
                        // As it should be.
                    }
                });
                Thread.sleep(40 + random.nextInt(120));
                own.kill();
                asking.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
                own.start();
                int before = left;
                // What was in doubt between two partitions is settled within moments of the start.
                long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS);
                do {
                    left = count(factory, "ActiveMQ.DLQ");
                } while (left + count(factory, "killed") != count && System.nanoTime() < end);
                killedMidway += left > 0 && left < before ? 1 : 0;
                assertEquals(count, left + count(factory, "killed"), "after kill " + kill);
            }
            assertTrue(killedMidway > 0, "no kill met it in the middle");
            own.command("redrive");
            assertEquals(0, count(factory, "ActiveMQ.DLQ"));
            assertEquals(count, count(factory, "killed"));
        }
    }

    /** Has so many messages end in the dead letters, because nobody reads them in time. */
    private static void buryAll(ConnectionFactory factory, int count) throws Exception {
        try (Connection connection = started(factory)) {
            Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
            MessageProducer producer = session.createProducer(session.createQueue("killed"));
            producer.setTimeToLive(100);
            for (int number = 0; number < count; number++) {
                producer.send(session.createTextMessage("m" + number));
            }
            session.commit();
        }
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (count(factory, "ActiveMQ.DLQ") < count) {
            assertTrue(System.nanoTime() < end, "all expire");
            Thread.sleep(200);
        }
    }

    private static Connection started(ConnectionFactory factory) throws JMSException {
        Connection connection = factory.createConnection();
        connection.start();
        return connection;
    }

    /** How many different messages the queue holds; none is there twice. */
    private static int count(ConnectionFactory factory, String queue) throws JMSException {
        try (Connection connection = started(factory)) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Set<String> texts = new HashSet<>();
            Enumeration<?> messages = session.createBrowser(session.createQueue(queue)).getEnumeration();
            while (messages.hasMoreElements()) {
                String text = ((TextMessage) messages.nextElement()).getText();
                assertTrue(texts.add(text), text + " is there twice");
            }
            return texts.size();
        }
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

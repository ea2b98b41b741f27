package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.Collections;
import java.util.List;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Routes to targets that refuse; {@link PartitionedRouteRedeliveryTest} has more partitions. */
@DisplayName("Redelivery by routes")
class RouteRedeliveryTest {
    private static final int PATIENCE_MS = 30_000;

    private static final String ROUTES = """
            [[policy]]
            destination = "queue://full.>"
            messages_max = 1
            at_limit = "fail"
            at_limit_wait_ms = 1

            [[route]]
            name = "patient"
            from = "queue://patient"
            redelivery_count = 1000
            redelivery_delay_ms = 300
            dead_letter_queue = "patient.bad"
            set = { seen = true }
            to = [{ destination = "queue://full.patient" }, { destination = "queue://patient.open" }]

            [[route]]
            name = "brief"
            from = "queue://brief"
            redelivery_count = 2
            redelivery_delay_ms = 100
            redelivery_multiplier = 2
            dead_letter_queue = "brief.bad"
            to = [{ destination = "queue://full.brief" }, { destination = "queue://brief.open" }]

            [[route]]
            name = "sorted"
            from = "queue://sorted"
            redelivery_count = 0
            dead_letter_queue = "sorted.bad"
            to = [{ destination = "queue://full.sorted" }]

            [[route]]
            name = "sorting"
            from = "queue://sorted.bad"
            selector = "postroadRoute = 'sorted'"
            set = { sorted = true }
            to = [{ destination = "queue://sorted.out" }]
            """;

    private Broker broker;
    private Connection openwire;
    private Connection amqp;
    private Session session;
    private Session amqpSession;

    /** The configuration before the routes. */
    String configuration() {
        return "";
    }

    @BeforeEach
    void start() throws Exception {
        broker = Broker.launch(getClass().getSimpleName(), configuration() + ROUTES);
        connect();
    }

    @AfterEach
    void stop() throws Exception {
        disconnect();
        broker.close();
    }

    private void connect() throws Exception {
        openwire = new ActiveMQConnectionFactory(broker.url()).createConnection();
        amqp = new JmsConnectionFactory(broker.amqpUrl()).createConnection();
        openwire.start();
        amqp.start();
        session = openwire.createSession(false, Session.AUTO_ACKNOWLEDGE);
        amqpSession = amqp.createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    private void disconnect() {
        for (Connection connection : new Connection[] {openwire, amqp}) {
            try {
                connection.close();
            } catch (JMSException gone) {
                // Its broker was killed.
            }
        }
    }

    private static void send(Session by, String queue, String text) throws Exception {
        RoutesTest.send(by, queue, text, null, null);
    }

    private static List<String> texts(Session by, String queue, int count) throws Exception {
        return RoutesTest.texts(by, queue, count);
    }

    private static List<String> sortedTexts(Session by, String queue, int count) throws Exception {
        List<String> texts = texts(by, queue, count);
        Collections.sort(texts);
        return texts;
    }

    @Test
    @DisplayName("a full target does not refuse the send, gets the message once it has room, and others have it at once")
    void redelivered() throws Exception {
        send(session, "full.patient", "blocker");
        send(session, "patient", "a");
        send(amqpSession, "patient", "b");
        assertEquals(List.of("a", "b"), texts(session, "patient.open", 2));
        MessageConsumer consumer = amqpSession.createConsumer(amqpSession.createQueue("full.patient"));
        TextMessage blocker = (TextMessage) consumer.receive(PATIENCE_MS);
        assertEquals("blocker", blocker.getText());
        List<String> got = new java.util.ArrayList<>();
        for (int n = 0; n < 2; n++) {
            TextMessage message = (TextMessage) consumer.receive(PATIENCE_MS);
            assertNotNull(message, "got " + got);
            assertTrue(message.getBooleanProperty("seen"));
            assertFalse(message.propertyExists("postroadRoute"));
            got.add(message.getText());
        }
        Collections.sort(got);
        assertEquals(List.of("a", "b"), got);
        consumer.close();
        assertEquals(List.of(), texts(session, "full.patient", 0));
        String routes = broker.command("ctl", "routes", "--json");
        assertTrue(routes.matches("(?s).*\"name\": ?\"patient\".*") && routes.matches("(?s).*\"retried\": ?[1-9].*"), routes);
    }

    @Test
    @DisplayName("a large message is redelivered whole, and its body is there for each target after kill -9")
    void largeMessages() throws Exception {
        byte[] body = new byte[3 << 20];
        for (int index = 0; index < body.length; index++) {
            body[index] = (byte) (index * 37 >> 4);
        }
        send(session, "full.patient", "blocker");
        for (Session by : List.of(session, amqpSession)) {
            BytesMessage message = by.createBytesMessage();
            message.writeBytes(body);
            by.createProducer(by.createQueue("patient")).send(message);
        }
        broker.kill();
        disconnect();
        broker.start();
        connect();
        for (String queue : List.of("full.patient", "patient.open")) {
            MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
            if (queue.equals("full.patient")) {
                assertEquals("blocker", ((TextMessage) consumer.receive(PATIENCE_MS)).getText());
            }
            for (int n = 0; n < 2; n++) {
                BytesMessage message = (BytesMessage) consumer.receive(PATIENCE_MS);
                assertNotNull(message, queue + " " + n);
                byte[] got = new byte[(int) message.getBodyLength()];
                message.readBytes(got);
                assertArrayEquals(body, got, queue);
                assertTrue(message.getBooleanProperty("seen"));
            }
            assertNull(consumer.receive(RoutesTest.SILENCE_MS), queue);
            consumer.close();
        }
    }

    @Test
    @DisplayName("after kill -9 redelivery goes on, and each target has each message once")
    void killed() throws Exception {
        send(session, "full.patient", "blocker");
        for (int n = 0; n < 5; n++) {
            send(n % 2 == 0 ? session : amqpSession, "patient", "m" + n);
        }
        broker.kill();
        disconnect();
        broker.start();
        connect();
        assertEquals(List.of("m0", "m1", "m2", "m3", "m4"), texts(session, "patient.open", 5));
        List<String> want = List.of("blocker", "m0", "m1", "m2", "m3", "m4");
        assertEquals(want, sortedTexts(session, "full.patient", 6));
    }

    @Test
    @DisplayName("after the last redelivery the message is a dead letter with its route, target and cause")
    void deadLetters() throws Exception {
        for (String target : List.of("full.brief", "full.sorted")) {
            send(session, target, "blocker");
        }
        for (Session by : List.of(session, amqpSession)) {
            long sent = System.nanoTime();
            send(by, "brief", "lost");
            for (Session reader : List.of(session)) {
                MessageConsumer consumer = reader.createConsumer(reader.createQueue("brief.bad"));
                Message dead = consumer.receive(PATIENCE_MS);
                assertNotNull(dead);
                assertTrue(System.nanoTime() - sent >= 300_000_000L, "100 ms and 200 ms");
                consumer.close();
                assertEquals("lost", ((TextMessage) dead).getText());
                assertEquals("brief", dead.getStringProperty("postroadRoute"));
                assertEquals("queue://full.brief", dead.getStringProperty("postroadRouteTarget"));
                assertEquals(2, dead.getIntProperty("postroadRouteRedeliveries"));
                String cause = dead.getStringProperty("dlqDeliveryFailureCause");
                assertTrue(cause.startsWith("route brief: ") && cause.contains("full.brief"), cause);
            }
        }
        assertEquals(List.of("lost", "lost"), texts(session, "brief.open", 2));
        send(session, "sorted", "routed");
        MessageConsumer consumer = amqpSession.createConsumer(amqpSession.createQueue("sorted.out"));
        Message sorted = consumer.receive(PATIENCE_MS);
        assertNotNull(sorted, "dead letters pass routes");
        assertTrue(sorted.getBooleanProperty("sorted"));
        assertEquals("queue://full.sorted", sorted.getStringProperty("postroadRouteTarget"));
        consumer.close();
        for (String queue : List.of("full.brief", "full.sorted")) {
            assertEquals(List.of("blocker"), texts(session, queue, 1));
        }
        assertEquals(List.of(), texts(session, "sorted.bad", 0));
    }

    @Test
    @DisplayName("dead letters are there once after kill -9")
    void killedAtTheEnd() throws Exception {
        send(session, "full.brief", "blocker");
        for (int n = 0; n < 10; n++) {
            send(session, "brief", "m" + n);
        }
        broker.kill();
        disconnect();
        broker.start();
        connect();
        QueueBrowser browser = session.createBrowser(session.createQueue("brief.bad"));
        int count = 0;
        for (long until = System.nanoTime() + PATIENCE_MS * 1_000_000L; count < 10 && System.nanoTime() < until; ) {
            Thread.sleep(20);
            count = Collections.list(browser.getEnumeration()).size();
        }
        browser.close();
        broker.kill();
        disconnect();
        broker.start();
        connect();
        List<String> want = List.of("m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9");
        assertEquals(want, sortedTexts(amqpSession, "brief.bad", 10));
        assertEquals(List.of("blocker"), texts(session, "full.brief", 1));
    }

    @Test
    @DisplayName("a transaction commits although a target is full, and one that is rolled back leaves nothing")
    void transactions() throws Exception {
        send(session, "full.brief", "blocker");
        for (Connection connection : List.of(openwire, amqp)) {
            Session transacted = connection.createSession(true, Session.SESSION_TRANSACTED);
            send(transacted, "brief", "undone");
            transacted.rollback();
            send(transacted, "brief", "done");
            transacted.commit();
            transacted.close();
            assertEquals(List.of("done"), texts(session, "brief.open", 1));
            assertEquals(List.of("done"), texts(session, "brief.bad", 1));
        }
    }
}

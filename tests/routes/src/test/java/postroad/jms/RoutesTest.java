package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.RedeliveryPolicy;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Routes in brokers of one partition; {@link PartitionedRoutesTest} has more of them. */
@DisplayName("Routes")
class RoutesTest {
    static final int PATIENCE_MS = 30_000;
    static final int SILENCE_MS = 300;

    private static final String ROUTES = """
            [[route]]
            name = "orders"
            from = "queue://orders"
            set = { stage = 2, key = "${region}/${number}", JMSType = "order" }
            copy = { was = "region" }
            remove = ["secret"]
            to = [
                { destination = "queue://eu", selector = "region = 'eu'", set = { tax = true } },
                { destination = "queue://us", selector = "region = 'us'" },
                { destination = "queue://archive", set = { JMSPriority = 7 } },
                { destination = "topic://seen", selector = "stage = 2" },
            ]
            otherwise = [{ destination = "queue://never" }]

            [[route]]
            name = "tap"
            from = "topic://news.>"
            mode = "copy"
            selector = "urgent = TRUE"
            set = { tapped = true }
            to = [{ destination = "queue://desk" }]

            [[route]]
            name = "pick"
            from = "queue://pick"
            distribute = "first"
            to = [
                { destination = "queue://low", selector = "n < 10" },
                { destination = "queue://mid", selector = "n < 100" },
            ]
            otherwise = [{ destination = "queue://high" }]

            [[route]]
            name = "turns"
            from = "queue://turns"
            distribute = "balance"
            to = [{ destination = "queue://turn.a" }, { destination = "queue://turn.b" }, { destination = "queue://turn.c" }]

            [[route]]
            name = "named"
            from = "queue://named"
            recipients = "cc"
            recipients_allow = ["queue://cc.>", "topic://cc.>"]
            dead_letter_queue = "named.bad"

            [[route]]
            name = "first"
            from = "queue://chain"
            set = { steps = "1" }
            to = [{ destination = "queue://chain.2" }]

            [[route]]
            name = "second"
            from = "queue://chain.2"
            selector = "steps = '1'"
            set = { steps = "${steps}2" }
            to = [{ destination = "queue://chain.3" }]

            [[route]]
            name = "late"
            from = "queue://late"
            delay_ms = 1500
            to = [{ destination = "queue://late.out" }, { destination = "queue://later.out", delay_ms = 500 }]

            [[route]]
            name = "slow"
            from = "queue://slow"
            throttle_messages = 5
            throttle_ms = 1000
            to = [{ destination = "queue://slow.out" }]

            [[route]]
            name = "dead"
            from = "queue://ActiveMQ.DLQ"
            selector = "team = 'a'"
            set = { sorted = true }
            to = [{ destination = "queue://dead.a" }]
            """;

    Broker broker;
    Connection openwire;
    Connection amqp;
    Session session;
    Session amqpSession;

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
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(broker.url());
        RedeliveryPolicy none = new RedeliveryPolicy();
        none.setMaximumRedeliveries(0);
        factory.setRedeliveryPolicy(none);
        openwire = factory.createConnection();
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

    private static void order(Session by, int number, String region) throws Exception {
        MessageProducer producer = by.createProducer(by.createQueue("orders"));
        TextMessage message = by.createTextMessage("order " + number);
        message.setStringProperty("region", region);
        message.setStringProperty("secret", "x");
        message.setIntProperty("number", number);
        producer.send(message);
        producer.close();
    }

    static void send(Session by, String queue, String text, String name, Object value) throws Exception {
        MessageProducer producer = by.createProducer(by.createQueue(queue));
        TextMessage message = by.createTextMessage(text);
        if (name != null) {
            message.setObjectProperty(name, value);
        }
        producer.send(message);
        producer.close();
    }

    private static Message take(Session by, String queue) throws Exception {
        MessageConsumer consumer = by.createConsumer(by.createQueue(queue));
        Message message = consumer.receive(PATIENCE_MS);
        consumer.close();
        assertNotNull(message, queue);
        return message;
    }

    /** The texts of this number of messages; no more are there. */
    static List<String> texts(Session by, String queue, int count) throws Exception {
        MessageConsumer consumer = by.createConsumer(by.createQueue(queue));
        List<String> texts = new ArrayList<>();
        while (texts.size() < count) {
            Message message = consumer.receive(PATIENCE_MS);
            assertNotNull(message, queue + " has " + texts);
            texts.add(((TextMessage) message).getText());
        }
        assertNull(consumer.receive(SILENCE_MS), queue);
        consumer.close();
        return texts;
    }

    private static void assertEmpty(Session by, String queue) throws Exception {
        assertEquals(List.of(), texts(by, queue, 0));
    }

    private static void assertOrder(Message message, int number, String region) throws Exception {
        assertEquals("order " + number, ((TextMessage) message).getText());
        assertEquals(2, message.getIntProperty("stage"));
        assertEquals(region + "/" + number, message.getStringProperty("key"));
        assertEquals(region, message.getStringProperty("was"));
        assertEquals(number, message.getIntProperty("number"));
        assertEquals("order", message.getJMSType());
        assertFalse(message.propertyExists("secret"));
    }

    @Test
    @DisplayName("matching targets get the message with other headers, by OpenWire and by AMQP, and the source nothing")
    void targets() throws Exception {
        for (Session from : List.of(session, amqpSession)) {
            for (Session to : List.of(session, amqpSession)) {
                MessageConsumer topic = to.createConsumer(to.createTopic("seen"));
                order(from, 7, "eu");
                Message eu = take(to, "eu");
                assertOrder(eu, 7, "eu");
                assertTrue(eu.getBooleanProperty("tax"));
                Message archived = take(to, "archive");
                assertOrder(archived, 7, "eu");
                assertEquals(7, archived.getJMSPriority());
                assertFalse(archived.propertyExists("tax"));
                assertOrder(topic.receive(PATIENCE_MS), 7, "eu");
                topic.close();
                assertEmpty(to, "us");
            }
        }
        assertEmpty(session, "orders");
        assertEmpty(session, "never");
    }

    @Test
    @DisplayName("after kill -9 every target has all confirmed messages, once")
    void killed() throws Exception {
        for (int number = 0; number < 20; number++) {
            order(number % 2 == 0 ? session : amqpSession, number, "us");
        }
        broker.kill();
        disconnect();
        broker.start();
        connect();
        for (String queue : List.of("us", "archive")) {
            MessageConsumer consumer = amqpSession.createConsumer(amqpSession.createQueue(queue));
            for (int number = 0; number < 20; number++) {
                Message message = consumer.receive(PATIENCE_MS);
                assertNotNull(message, queue + " " + number);
                assertOrder(message, number, "us");
            }
            assertNull(consumer.receive(SILENCE_MS));
            consumer.close();
        }
    }

    @Test
    @DisplayName("in a transaction all targets get all messages, or none")
    void transactions() throws Exception {
        Session transacted = openwire.createSession(true, Session.SESSION_TRANSACTED);
        Session byAmqp = amqp.createSession(true, Session.SESSION_TRANSACTED);
        for (Session each : List.of(transacted, byAmqp)) {
            order(each, 1, "eu");
            order(each, 2, "eu");
            assertEmpty(session, "archive");
            each.rollback();
            order(each, 3, "eu");
            send(each, "plain", "with it", null, null);
            each.commit();
            assertEquals(List.of("order 3"), texts(session, "archive", 1));
            assertEquals(List.of("order 3"), texts(session, "eu", 1));
            assertEquals(List.of("with it"), texts(session, "plain", 1));
        }
    }

    @Test
    @DisplayName("a tap copies messages that its selector matches, and the topic has it unchanged")
    void tap() throws Exception {
        MessageConsumer reader = session.createConsumer(session.createTopic("news.>"));
        MessageProducer producer = session.createProducer(session.createTopic("news.sport"));
        for (boolean urgent : new boolean[] {true, false}) {
            TextMessage message = session.createTextMessage("urgent " + urgent);
            message.setBooleanProperty("urgent", urgent);
            producer.send(message);
        }
        for (boolean urgent : new boolean[] {true, false}) {
            TextMessage message = (TextMessage) reader.receive(PATIENCE_MS);
            assertEquals("urgent " + urgent, message.getText());
            assertFalse(message.propertyExists("tapped"));
        }
        Message tapped = take(amqpSession, "desk");
        assertEquals("urgent true", ((TextMessage) tapped).getText());
        assertTrue(tapped.getBooleanProperty("tapped"));
        assertEmpty(session, "desk");
    }

    @Test
    @DisplayName("a choice takes the first that matches, and a balance takes turns")
    void distribution() throws Exception {
        for (int n : new int[] {5, 50, 500}) {
            send(session, "pick", "n " + n, "n", n);
        }
        assertEquals(List.of("n 5"), texts(session, "low", 1));
        assertEquals(List.of("n 50"), texts(session, "mid", 1));
        assertEquals(List.of("n 500"), texts(session, "high", 1));
        for (int n = 0; n < 9; n++) {
            send(session, "turns", "t" + n, null, null);
        }
        List<String> all = new ArrayList<>();
        for (String queue : List.of("turn.a", "turn.b", "turn.c")) {
            List<String> some = texts(amqpSession, queue, 3);
            all.addAll(some);
        }
        Collections.sort(all);
        assertEquals(List.of("t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8"), all);
    }

    @Test
    @DisplayName("a recipient list names targets, and one that cannot be used is a dead letter with its reason")
    void recipients() throws Exception {
        MessageConsumer topic = session.createConsumer(session.createTopic("cc.t"));
        send(session, "named", "list", "cc", "queue://cc.a, cc.b,topic://cc.t,cc.a");
        assertEquals(List.of("list"), texts(session, "cc.a", 1));
        assertEquals(List.of("list"), texts(amqpSession, "cc.b", 1));
        assertEquals("list", ((TextMessage) topic.receive(PATIENCE_MS)).getText());
        send(amqpSession, "named", "foreign", "cc", "queue://cc.a,queue://payroll");
        send(session, "named", "missing", null, null);
        for (String reason : List.of("queue://payroll in the header cc is not allowed", "the header cc is missing")) {
            String said = take(session, "named.bad").getStringProperty("dlqDeliveryFailureCause");
            assertTrue(said.contains("route named: " + reason), said);
        }
        assertEmpty(session, "cc.a");
        assertEmpty(session, "payroll");
    }

    @Test
    @DisplayName("a target may be the source of the next route, which sees changed headers")
    void chain() throws Exception {
        send(session, "chain", "c", null, null);
        Message message = take(amqpSession, "chain.3");
        assertEquals("12", message.getStringProperty("steps"));
        assertEmpty(session, "chain.2");
    }

    @Test
    @DisplayName("delays are kept, across a kill too, and a throttle spreads messages over time")
    void time() throws Exception {
        long sent = System.nanoTime();
        send(session, "late", "l", null, null);
        broker.kill();
        disconnect();
        broker.start();
        connect();
        assertEquals("l", ((TextMessage) take(session, "late.out")).getText());
        assertTrue(System.nanoTime() - sent >= 1_450_000_000L);
        assertEquals("l", ((TextMessage) take(amqpSession, "later.out")).getText());
        assertTrue(System.nanoTime() - sent >= 1_950_000_000L);
        long began = System.nanoTime();
        for (int n = 0; n < 12; n++) {
            send(session, "slow", "s" + n, null, null);
        }
        MessageConsumer consumer = session.createConsumer(session.createQueue("slow.out"));
        for (int n = 0; n < 12; n++) {
            assertEquals("s" + n, ((TextMessage) consumer.receive(PATIENCE_MS)).getText());
        }
        assertTrue(System.nanoTime() - began >= 1_900_000_000L, "12 messages at 5 in a second");
    }

    @Test
    @DisplayName("SIGHUP reads routes again, and an error in the file changes nothing")
    void routesFollowTheConfiguration() throws Exception {
        send(session, "pick", "before", "n", 5);
        assertEquals(List.of("before"), texts(session, "low", 1));
        broker.configure(configuration() + "[[route]]\nname = 'pick'\nfrom = 'queue://pick'\nto = [{ destination = 'queue://moved' }]\n");
        broker.reload();
        awaitLog("configuration reloaded");
        // Each core takes the new routes by itself.
        MessageConsumer moved = session.createConsumer(session.createQueue("moved"));
        Message after = null;
        for (int tries = 0; after == null && tries < PATIENCE_MS / SILENCE_MS; tries++) {
            send(session, "pick", "after", "n", 5);
            after = moved.receive(SILENCE_MS);
        }
        assertNotNull(after, "the new route");
        moved.close();
        broker.configure(configuration() + "[[route]]\nname = 'pick'\nfrom = 'pick'\n");
        broker.reload();
        awaitLog("reloading the configuration failed");
        send(session, "pick", "still", "n", 5);
        String text = "after";
        while (text.equals("after")) {
            text = ((TextMessage) take(session, "moved")).getText();
        }
        assertEquals("still", text);
    }

    private void awaitLog(String pattern) throws Exception {
        java.util.regex.Pattern wanted = java.util.regex.Pattern.compile(pattern);
        for (long until = System.nanoTime() + PATIENCE_MS * 1_000_000L; !wanted.matcher(broker.log()).find(); ) {
            assertTrue(System.nanoTime() < until, pattern + " is not in " + broker.log());
            Thread.sleep(20);
        }
    }

    @Test
    @DisplayName("dead letters pass routes")
    void deadLetters() throws Exception {
        for (String team : List.of("a", "b")) {
            send(session, "work", "for " + team, "team", team);
        }
        Session rejecting = openwire.createSession(true, Session.SESSION_TRANSACTED);
        MessageConsumer consumer = rejecting.createConsumer(rejecting.createQueue("work"));
        for (int n = 0; n < 2; n++) {
            assertNotNull(consumer.receive(PATIENCE_MS));
            rejecting.rollback();
        }
        consumer.close();
        Message sorted = take(amqpSession, "dead.a");
        assertEquals("for a", ((TextMessage) sorted).getText());
        assertTrue(sorted.getBooleanProperty("sorted"));
        assertEquals("for b", ((TextMessage) take(session, "ActiveMQ.DLQ")).getText());
    }

    @Test
    @DisplayName("scheduled messages reach the targets when they are due")
    void scheduled() throws Exception {
        MessageProducer producer = session.createProducer(session.createQueue("orders"));
        TextMessage message = session.createTextMessage("order 9");
        message.setStringProperty("region", "us");
        message.setIntProperty("number", 9);
        message.setLongProperty("AMQ_SCHEDULED_DELAY", 1000);
        long sent = System.nanoTime();
        producer.send(message);
        assertOrder(take(session, "us"), 9, "us");
        assertTrue(System.nanoTime() - sent >= 950_000_000L);
        assertOrder(take(amqpSession, "archive"), 9, "us");
    }

    @Test
    @DisplayName("all versions of a large message have its body")
    void large() throws Exception {
        byte[] body = new byte[3 << 20];
        for (int index = 0; index < body.length; index++) {
            body[index] = (byte) (index * 31 >> 3);
        }
        for (Session from : List.of(session, amqpSession)) {
            BytesMessage message = from.createBytesMessage();
            message.writeBytes(body);
            message.setStringProperty("region", "eu");
            from.createProducer(from.createQueue("orders")).send(message);
            for (String queue : List.of("eu", "archive")) {
                BytesMessage got = (BytesMessage) take(from, queue);
                byte[] bytes = new byte[(int) got.getBodyLength()];
                got.readBytes(bytes);
                org.junit.jupiter.api.Assertions.assertArrayEquals(body, bytes);
                assertEquals("eu/", got.getStringProperty("key"));
            }
        }
    }

    @Test
    @DisplayName("without a target that matches, a message stays where it was sent")
    void unmatched() throws Exception {
        send(session, "chain.2", "stays", null, null);
        QueueBrowser browser = session.createBrowser(session.createQueue("chain.2"));
        assertEquals("stays", ((TextMessage) browser.getEnumeration().nextElement()).getText());
        browser.close();
        assertEquals(List.of("stays"), texts(session, "chain.2", 1));
    }
}

package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;

import jakarta.jms.DeliveryMode;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.util.List;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.command.ActiveMQTopic;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** What topics keep for subscribers that come later, by policy. */
@NeedsOwnBroker
@DisplayName("retroactive consumers")
class RetroactiveTest extends JmsTest {
    private static final String CONFIGURATION = """
            [[policy]]
            destination = "topic://last.>"
            retroactive_messages = 1

            [[policy]]
            destination = "topic://count.>"
            retroactive_messages = 3

            [[policy]]
            destination = "topic://bytes.>"
            retroactive_bytes = 4000

            [[policy]]
            destination = "topic://time.>"
            retroactive_ms = 1500

            [[policy]]
            destination = "topic://always.>"
            retroactive_messages = 3
            retroactive_always = true
            """;

    private static Broker broker;

    @BeforeAll
    static void launch() throws Exception {
        broker = Broker.launch("retroactive", CONFIGURATION);
    }

    @AfterAll
    static void close() throws Exception {
        broker.close();
    }

    private static ActiveMQTopic asking(String topic) {
        return new ActiveMQTopic(topic + "?consumer.retroactive=true");
    }

    private static void sendNumbered(Session session, String topic, int mode, int count) throws Exception {
        MessageProducer producer = session.createProducer(new ActiveMQTopic(topic));
        producer.setDeliveryMode(mode);
        for (int number = 0; number < count; number++) {
            Message message = session.createTextMessage("m" + number);
            message.setIntProperty("n", number);
            producer.send(message);
        }
        producer.close();
    }

    @Test
    @DisplayName("the last message, or the last three, whatever their delivery mode")
    void countedMessages() throws Exception {
        Session session = sessionAt(broker);
        for (int mode : new int[] {DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT}) {
            sendNumbered(session, "last.x" + mode, mode, 5);
            sendNumbered(session, "count.x" + mode, mode, 5);
            MessageConsumer last = session.createConsumer(asking("last.x" + mode));
            assertEquals(List.of("m4"), texts(last, 1));
            assertSilent(last);
            MessageConsumer three = session.createConsumer(asking("count.x" + mode));
            assertEquals(List.of("m2", "m3", "m4"), texts(three, 3));
            send(session, new ActiveMQTopic("count.x" + mode), "new");
            assertEquals(List.of("new"), texts(three, 1));
            assertSilent(session.createConsumer(new ActiveMQTopic("count.x" + mode)));
        }
    }

    @Test
    @DisplayName("selectors and patterns of topics hold for what is recovered")
    void selectorsAndPatterns() throws Exception {
        Session session = sessionAt(broker);
        sendNumbered(session, "count.s.a", DeliveryMode.PERSISTENT, 4);
        sendNumbered(session, "count.s.b", DeliveryMode.PERSISTENT, 2);
        assertEquals(List.of("m3"), texts(session.createConsumer(asking("count.s.a"), "n > 2"), 1));
        MessageConsumer all = session.createConsumer(asking("count.s.*"));
        assertEquals(List.of("m1", "m2", "m3", "m0", "m1"), texts(all, 5));
        assertSilent(all);
    }

    @Test
    @DisplayName("messages of so many bytes, and none that is too old")
    void bytesAndTime() throws Exception {
        Session session = sessionAt(broker);
        for (int number = 0; number < 6; number++) {
            send(session, new ActiveMQTopic("bytes.x"), number + "x".repeat(1000));
        }
        MessageConsumer bytes = session.createConsumer(asking("bytes.x"));
        List<String> kept = texts(bytes, 3).stream().map(text -> text.substring(0, 1)).toList();
        assertEquals(List.of("3", "4", "5"), kept);
        assertSilent(bytes);
        send(session, new ActiveMQTopic("time.x"), "old");
        Thread.sleep(1800);
        send(session, new ActiveMQTopic("time.x"), "young");
        MessageConsumer timed = session.createConsumer(asking("time.x"));
        assertEquals(List.of("young"), texts(timed, 1));
        assertSilent(timed);
    }

    @Test
    @DisplayName("by policy everybody, and a new durable subscription once")
    void alwaysAndDurable() throws Exception {
        Session session = sessionAt(broker);
        sendNumbered(session, "always.x", DeliveryMode.PERSISTENT, 2);
        assertEquals(List.of("m0", "m1"), texts(session.createConsumer(new ActiveMQTopic("always.x")), 2));
        ActiveMQConnection connection = unstarted(factoryFor(broker.url()));
        connection.setClientID(unique("client"));
        connection.start();
        Session durable = autoAcknowledge(connection);
        sendNumbered(session, "count.d", DeliveryMode.PERSISTENT, 2);
        MessageConsumer first = durable.createDurableSubscriber(asking("count.d"), "s");
        assertEquals(List.of("m0", "m1"), texts(first, 2));
        first.close();
        send(session, new ActiveMQTopic("count.d"), "new");
        MessageConsumer again = durable.createDurableSubscriber(asking("count.d"), "s");
        assertEquals(List.of("new"), texts(again, 1));
        assertSilent(again);
    }
}

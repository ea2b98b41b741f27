package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;

import jakarta.jms.DeliveryMode;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.util.List;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** What the configuration says about addresses, in a broker of several partitions. */
@NeedsOwnBroker
@DisplayName("Addressing by configuration, over partitions")
class ConfiguredAddressingTest extends JmsTest {
    private static final String CONFIGURATION = """
            [runtime]
            partitions = 3
            [mirrored_queues]
            queues = "seen.>"
            [[composite]]
            address = "queue://all"
            targets = [
                { destination = "queue://part.a" },
                { destination = "queue://part.red", selector = "colour = 'red'" },
                { destination = "topic://part.t" },
            ]
            [[virtual_topic]]
            topics = "VirtualTopic.>"
            [[virtual_topic]]
            topics = "choice.>"
            prefix = "S.*."
            selector_aware = true
            """;

    private static Broker broker;

    @BeforeAll
    static void launch() throws Exception {
        broker = Broker.launch("addressing", CONFIGURATION);
    }

    @AfterAll
    static void close() throws Exception {
        broker.close();
    }

    @Test
    @DisplayName("a composite destination sends to each target what it selects")
    void composite() throws Exception {
        Session session = sessionAt(broker);
        MessageConsumer topic = session.createConsumer(new ActiveMQTopic("part.t"));
        MessageProducer producer = session.createProducer(new ActiveMQQueue("all"));
        for (String colour : List.of("red", "blue")) {
            Message message = session.createTextMessage(colour);
            message.setStringProperty("colour", colour);
            producer.send(message);
        }
        MessageConsumer all = session.createConsumer(new ActiveMQQueue("part.a"));
        assertEquals(List.of("red", "blue"), texts(all, 2));
        assertEquals(List.of("red", "blue"), texts(topic, 2));
        MessageConsumer red = session.createConsumer(new ActiveMQQueue("part.red"));
        Message message = receive(red);
        assertEquals("red", text(message));
        assertEquals(new ActiveMQQueue("part.red"), message.getJMSDestination());
        assertSilent(red);
        assertSilent(session.createConsumer(new ActiveMQQueue("all")));
    }

    @Test
    @DisplayName("a mirrored queue shows its messages on a topic, and keeps them")
    void mirrored() throws Exception {
        Session session = sessionAt(broker);
        MessageConsumer mirror = session.createConsumer(new ActiveMQTopic("VirtualTopic.Mirror.seen.x"));
        send(session, new ActiveMQQueue("seen.x"), "m", "n");
        assertEquals(List.of("m", "n"), texts(mirror, 2));
        assertEquals(List.of("m", "n"), texts(session.createConsumer(new ActiveMQQueue("seen.x")), 2));
    }

    @Test
    @DisplayName("a list over partitions keeps the order of its producer")
    void listOverPartitions() throws Exception {
        Session session = sessionAt(broker);
        String[] sent = numbered("m", 30);
        for (int mode : new int[] {DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT}) {
            MessageProducer list = session.createProducer(new ActiveMQQueue("l.a,l.b,l.c,l.d,l.e"));
            MessageProducer one = session.createProducer(new ActiveMQQueue("l.a"));
            list.setDeliveryMode(mode);
            one.setDeliveryMode(mode);
            for (int number = 0; number < sent.length; number++) {
                (number % 3 == 0 ? one : list).send(session.createTextMessage(sent[number]));
            }
            MessageConsumer consumer = session.createConsumer(new ActiveMQQueue("l.a"));
            assertEquals(List.of(sent), texts(consumer, sent.length));
            consumer.close();
        }
        for (String each : List.of("l.b", "l.c", "l.d", "l.e")) {
            MessageConsumer consumer = session.createConsumer(new ActiveMQQueue(each));
            assertEquals(40, texts(consumer, 40).size());
            assertSilent(consumer);
        }
    }

    @Test
    @DisplayName("virtual topics, selector-aware ones, and patterns of topics reach every partition")
    void virtualTopicsAndPatterns() throws Exception {
        Session session = sessionAt(broker);
        MessageConsumer pattern = session.createConsumer(new ActiveMQTopic("VirtualTopic.>"));
        for (String name : List.of("VirtualTopic.a", "VirtualTopic.b", "VirtualTopic.c", "VirtualTopic.d")) {
            MessageConsumer consumer = session.createConsumer(new ActiveMQQueue("Consumer.A." + name));
            send(session, new ActiveMQTopic(name), name);
            assertEquals(List.of(name), texts(consumer, 1));
            assertEquals(new ActiveMQTopic(name), receive(pattern).getJMSDestination());
            consumer.close();
        }
        MessageConsumer red = session.createConsumer(new ActiveMQQueue("S.A.choice.x"), "colour = 'red'");
        MessageProducer producer = session.createProducer(new ActiveMQTopic("choice.x"));
        for (String colour : List.of("blue", "red")) {
            Message message = session.createTextMessage(colour);
            message.setStringProperty("colour", colour);
            producer.send(message);
        }
        assertEquals(List.of("red"), texts(red, 1));
        red.close();
        assertSilent(session.createConsumer(new ActiveMQQueue("S.A.choice.x")));
    }
}

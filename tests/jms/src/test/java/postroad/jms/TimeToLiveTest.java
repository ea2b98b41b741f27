package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** How long messages live, by policy. */
@NeedsOwnBroker
@DisplayName("time to live by policy")
class TimeToLiveTest extends PlainTest {
    private static final String CONFIGURATION = """
            [[policy]]
            destination = "queue://given.>"
            ttl_default_ms = 60000

            [[policy]]
            destination = "queue://short.>"
            ttl_default_ms = 500
            ttl_max_ms = 700
            """;

    private static Broker broker;

    @BeforeAll
    static void launch() throws Exception {
        broker = Broker.launch("ttl", CONFIGURATION);
    }

    @AfterAll
    static void close() throws Exception {
        broker.close();
    }

    private static void send(Session session, String queue, long timeToLive) throws Exception {
        MessageProducer producer = session.createProducer(session.createQueue(queue));
        producer.setTimeToLive(timeToLive);
        producer.send(session.createTextMessage("ttl " + timeToLive));
        producer.close();
    }

    @Test
    @DisplayName("messages without an end get one, which their consumers see; others keep theirs")
    void givenAnEnd() throws Exception {
        Session session = autoAcknowledge(closing(open(broker)));
        send(session, "given.a", 0);
        send(session, "given.a", 3_600_000);
        MessageConsumer consumer = session.createConsumer(session.createQueue("given.a"));
        for (long left : new long[] {60_000, 3_600_000}) {
            Message message = receive(consumer);
            long lives = message.getJMSExpiration() - message.getJMSTimestamp();
            assertTrue(Math.abs(lives - left) < 5_000, () -> "lives for " + lives + " ms, not " + left);
        }
    }

    @Test
    @DisplayName("an end that is too far away comes earlier, and the message becomes a dead letter then")
    void endsComeEarlier() throws Exception {
        Session session = autoAcknowledge(closing(open(broker)));
        send(session, "short.a", 0);
        send(session, "short.a", 3_600_000);
        MessageConsumer dead = session.createConsumer(session.createQueue("ActiveMQ.DLQ"));
        assertEquals(List.of("ttl 0", "ttl 3600000"), texts(dead, 2));
        assertSilent(session.createConsumer(session.createQueue("short.a")));
    }
}

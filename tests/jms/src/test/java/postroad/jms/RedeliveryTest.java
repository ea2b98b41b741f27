package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.List;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.command.ActiveMQQueue;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Deliveries that the broker adds after a client gave up, by policy. */
@NeedsOwnBroker
@DisplayName("redelivery by the broker")
class RedeliveryTest extends JmsTest {
    private static final String CONFIGURATION = """
            [[policy]]
            destination = "queue://growing.>"
            redelivery_count = 3
            redelivery_delay_ms = 300
            redelivery_multiplier = 2
            dead_letter_queue = "DLQ.*"

            [[policy]]
            destination = "queue://bounded.>"
            redelivery_count = 3
            redelivery_delay_ms = 200
            redelivery_multiplier = 100
            redelivery_delay_max_ms = 400
            """;

    private static Broker broker;

    @BeforeAll
    static void launch() throws Exception {
        broker = Broker.launch("redelivery", CONFIGURATION);
    }

    @AfterAll
    static void close() throws Exception {
        broker.close();
    }

    /** A client that gives up at its first failure. */
    private ActiveMQConnection impatient() throws Exception {
        ActiveMQConnection connection = unstarted(factoryFor(broker.url(), "jms.redeliveryPolicy.maximumRedeliveries=0"));
        connection.start();
        return connection;
    }

    /** Fails on each delivery of a message; the pauses between deliveries, in ms. */
    private List<Long> pauses(ActiveMQQueue queue, int deliveries) throws Exception {
        Session session = transacted(impatient());
        MessageConsumer consumer = session.createConsumer(queue);
        List<Long> pauses = new ArrayList<>();
        long before = System.nanoTime();
        for (int delivery = 1; delivery <= deliveries; delivery++) {
            Message message = receive(consumer);
            long now = System.nanoTime();
            assertEquals("m " + delivery + (delivery > 1 ? "*" : ""), delivery(message));
            pauses.add((now - before) / 1_000_000);
            session.rollback();
            before = System.nanoTime();
        }
        assertSilent(consumer);
        return pauses.subList(1, pauses.size());
    }

    @Test
    @DisplayName("a message rests longer each time, and then lies among the dead letters with its cause")
    void restsGrow() throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue("growing.a");
        Session session = autoAcknowledge(impatient());
        send(session, queue, "m");
        List<Long> pauses = pauses(queue, 4);
        long least = 300;
        for (long pause : pauses) {
            assertTrue(least <= pause + 20, () -> "rests of 300, 600 and 1200 ms at least: " + pauses);
            least *= 2;
        }
        MessageConsumer dead = session.createConsumer(new ActiveMQQueue("DLQ.growing.a"));
        Message letter = receive(dead);
        assertEquals("m", text(letter));
        assertTrue(letter.propertyExists("dlqDeliveryFailureCause"), "it says why");
        assertEmptyAt(queue);
    }

    @Test
    @DisplayName("no rest is longer than its maximum, and others go past a message that rests")
    void restsAreBoundedAndHoldNobodyUp() throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue("bounded.a");
        Session session = autoAcknowledge(impatient());
        send(session, queue, "m");
        Session failing = transacted(impatient());
        MessageConsumer consumer = failing.createConsumer(queue);
        receive(consumer);
        failing.rollback();
        send(session, queue, "later");
        assertEquals(List.of("later 1"), deliveries(consumer, 1));
        failing.commit();
        long before = System.nanoTime();
        for (int delivery = 2; delivery <= 4; delivery++) {
            assertEquals("m " + delivery + "*", delivery(receive(consumer)));
            if (delivery < 4) {
                failing.rollback();
            }
        }
        failing.commit();
        long millis = (System.nanoTime() - before) / 1_000_000;
        assertTrue(millis < 8_000, () -> "rests of 400 ms at most, not of 20 s: " + millis);
        assertEmptyAt(queue);
    }

    private void assertEmptyAt(ActiveMQQueue queue) throws Exception {
        assertSilent(autoAcknowledge(impatient()).createConsumer(queue));
    }
}

package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import org.apache.activemq.command.ActiveMQQueue;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Queues that an operator pauses: docs/features/queues.md. */
@NeedsOwnBroker
@DisplayName("Paused queues")
class PauseTest extends JmsTest {
    @Test
    @DisplayName("consumers stay attached and get nothing, also after a restart, until the queue is resumed")
    void pause() throws Exception {
        try (Broker broker = Broker.launch("pause")) {
            ActiveMQQueue orders = new ActiveMQQueue("orders");
            Session session = sessionAt(broker);
            MessageConsumer consumer = session.createConsumer(orders);
            MessageProducer producer = session.createProducer(orders);
            producer.send(session.createTextMessage("before"));
            assertEquals("before", text(consumer.receive(PATIENCE_MS)));

            broker.command("ctl", "pause", "orders");
            producer.send(session.createTextMessage("first"));
            assertNull(consumer.receive(SILENCE_MS), "a paused queue delivers nothing");
            assertNull(sessionAt(broker).createConsumer(orders).receive(SILENCE_MS), "nor to a new consumer");

            broker.kill();
            broker.start();
            Session again = sessionAt(broker);
            MessageConsumer later = again.createConsumer(orders);
            assertNull(later.receive(SILENCE_MS), "the pause survives a restart");
            again.createProducer(orders).send(again.createTextMessage("second"));
            broker.command("ctl", "resume", "orders");
            assertEquals("first", text(later.receive(PATIENCE_MS)));
            assertEquals("second", text(later.receive(PATIENCE_MS)));
        }
    }
}

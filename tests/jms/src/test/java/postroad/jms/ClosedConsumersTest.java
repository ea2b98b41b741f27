package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import jakarta.jms.Connection;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.command.ActiveMQQueue;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** What a client has acknowledged when it closes: docs/features/durability.md. */
@NeedsOwnBroker
@DisplayName("Closed consumers")
class ClosedConsumersTest extends JmsTest {
    private static final int ROUNDS = 8;
    private static final int PER_ROUND = 5;

    @Test
    @DisplayName("what a client has read does not come again after it closed its connection, also if the broker is killed at once")
    void killed() throws Exception {
        try (Broker broker = Broker.launch("closed")) {
            ActiveMQQueue orders = new ActiveMQQueue("orders");
            Session session = sessionAt(broker);
            MessageProducer producer = session.createProducer(orders);
            for (int number = 0; number < ROUNDS * PER_ROUND; number++) {
                producer.send(session.createTextMessage("order " + number));
            }
            for (int round = 0; round < ROUNDS; round++) {
                Connection connection = new ActiveMQConnectionFactory(broker.url()).createConnection();
                connection.start();
                MessageConsumer consumer = connection.createSession(false, Session.AUTO_ACKNOWLEDGE).createConsumer(orders);
                for (int number = 0; number < PER_ROUND; number++) {
                    assertEquals("order " + (round * PER_ROUND + number), text(consumer.receive(PATIENCE_MS)), "round " + round);
                }
                // AUTO_ACKNOWLEDGE waits for no response; the close does.
                connection.close();
                broker.kill();
                broker.start();
            }
            assertNull(sessionAt(broker).createConsumer(orders).receive(SILENCE_MS), "all was read");
        }
    }
}

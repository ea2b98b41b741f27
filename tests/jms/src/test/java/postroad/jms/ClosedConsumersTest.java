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
        readInRounds("closed", consumer -> { });
    }

    /** The client waits for no response to the end of its consumer: that of its connection is the first that it waits for. */
    @Test
    @DisplayName("it does not come again either if the consumer was closed ahead of the connection")
    void killedAfterItsConsumerWasClosed() throws Exception {
        readInRounds("consumer-closed", MessageConsumer::close);
    }

    private interface Ending {
        void end(MessageConsumer consumer) throws Exception;
    }

    private void readInRounds(String name, Ending ending) throws Exception {
        try (Broker broker = Broker.launch(name)) {
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
                // AUTO_ACKNOWLEDGE waits for no response; the close of the connection does.
                ending.end(consumer);
                connection.close();
                broker.kill();
                broker.start();
            }
            assertNull(sessionAt(broker).createConsumer(orders).receive(SILENCE_MS), "all was read");
        }
    }
}

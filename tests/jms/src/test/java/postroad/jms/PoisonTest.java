package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import java.util.List;
import org.apache.activemq.command.ActiveMQQueue;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** What ActiveMQ's client does with a message that it cannot process. */
class PoisonTest extends PlainTest {
    @Test
    @DisplayName("a message rolled back too often goes to ActiveMQ.DLQ by the client's poison acknowledgement")
    void poisonedMessage() throws Exception {
        Connection connection = connect("jms.redeliveryPolicy.maximumRedeliveries=2", AT_ONCE[0], AT_ONCE[1]);
        ActiveMQQueue queue = queue("poison");
        Session sender = autoAcknowledge(connection);
        Message poison = sender.createTextMessage("poison");
        poison.setStringProperty("test", queue.getQueueName());
        sender.createProducer(queue).send(poison);
        send(sender, queue, "good");
        Session session = transacted(connection);
        MessageConsumer consumer = session.createConsumer(queue);
        for (String want : List.of("poison 1", "poison 2*", "poison 3*")) {
            assertEquals(want, delivery(receive(consumer)));
            session.rollback();
        }
        assertEquals("good", text(receive(consumer)));
        session.commit();
        MessageConsumer dead = autoAcknowledge(connection).createConsumer(new ActiveMQQueue("ActiveMQ.DLQ"),
                "test = '" + queue.getQueueName() + "'");
        Message got = receive(dead);
        assertEquals("poison", text(got));
        assertNotNull(got.getStringProperty("dlqDeliveryFailureCause"), "the cause of the failure");
        session.close();
        assertEmpty(queue);
    }
}

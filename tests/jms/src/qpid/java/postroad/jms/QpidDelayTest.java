package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Delivery delay of JMS 2.0: messages that are due later. */
class QpidDelayTest extends QpidTest {
    private static final long DELAY_MS = 1_500;

    /** Sends with a delay, and returns when the message is due as the client says it. */
    private static long sendDelayed(Session session, MessageProducer producer, String text) throws Exception {
        producer.setDeliveryDelay(DELAY_MS);
        Message message = session.createTextMessage(text);
        long before = System.currentTimeMillis();
        producer.send(message);
        assertTrue(message.getJMSDeliveryTime() >= before + DELAY_MS, "the client has set no delivery time");
        return message.getJMSDeliveryTime();
    }

    @Test
    void aDelayedMessageComesWhenItIsDueAndSaysSo() throws Exception {
        Session session = autoAcknowledge(connect());
        Queue queue = session.createQueue(unique("queue"));
        MessageConsumer consumer = session.createConsumer(queue);
        long dueAt = sendDelayed(session, session.createProducer(queue), "later");
        send(session, queue, "now");
        assertEquals("now", text(receive(consumer)));
        Message later = receive(consumer);
        long came = System.currentTimeMillis();
        assertEquals("later", text(later));
        assertEquals(dueAt, later.getJMSDeliveryTime());
        assertTrue(came >= dueAt, () -> "it came " + (dueAt - came) + " ms too early");
    }

    @Test
    void anAnonymousProducerDelaysToo() throws Exception {
        Session session = autoAcknowledge(connect());
        Topic topic = session.createTopic(unique("topic"));
        MessageConsumer consumer = session.createConsumer(topic);
        MessageProducer producer = session.createProducer(null);
        producer.setDeliveryDelay(DELAY_MS);
        producer.send(topic, session.createTextMessage("later"));
        producer.setDeliveryDelay(0);
        producer.send(topic, session.createTextMessage("now"));
        assertEquals(List.of("now", "later"), texts(consumer, 2));
    }

    @Test
    void inATransactionOnlyWhatIsCommittedBecomesDue() throws Exception {
        Session session = transacted(connect());
        Queue queue = session.createQueue(unique("transacted"));
        MessageProducer producer = session.createProducer(queue);
        sendDelayed(session, producer, "rolled back");
        session.rollback();
        long dueAt = sendDelayed(session, producer, "committed");
        session.commit();
        MessageConsumer consumer = autoAcknowledge(connect()).createConsumer(queue);
        Message message = receive(consumer);
        assertEquals("committed", text(message));
        assertTrue(System.currentTimeMillis() >= dueAt, "too early");
        assertSilent(consumer);
    }
}

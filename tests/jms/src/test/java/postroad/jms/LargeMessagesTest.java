package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.BytesMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Bodies that the broker never has in memory: it passes them on in pieces. */
@DisplayName("JMS 3.11: large bodies")
class LargeMessagesTest extends JmsTest {
    private static final int BODY_BYTES = 48 * 1024 * 1024 + 3;
    private static final long WAIT_MS = 60_000;

    private static byte[] body(long seed) {
        byte[] body = new byte[BODY_BYTES];
        new Random(seed).nextBytes(body);
        return body;
    }

    private static void send(Session session, Queue queue, byte[] body, int number) throws Exception {
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(body);
        message.setIntProperty("number", number);
        MessageProducer producer = session.createProducer(queue);
        producer.send(message);
        producer.close();
    }

    private static void assertBody(byte[] want, Message got) throws Exception {
        assertTrue(got instanceof BytesMessage, String.valueOf(got));
        BytesMessage message = (BytesMessage) got;
        byte[] body = new byte[(int) message.getBodyLength()];
        message.readBytes(body);
        assertTrue(Arrays.equals(want, body), "another body");
    }

    @Test
    @DisplayName("a rollback gives the message back, a commit takes it; selectors see its properties")
    void inTransactions() throws Exception {
        Queue queue = queue("large");
        byte[] body = body(1);
        Session session = connect().createSession(true, Session.SESSION_TRANSACTED);
        send(session, queue, body, 1);
        session.rollback();
        send(session, queue, body, 2);
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue, "number = 2");
        assertBody(body, consumer.receive(WAIT_MS));
        session.rollback();
        Message again = consumer.receive(WAIT_MS);
        assertBody(body, again);
        assertEquals(2, again.getIntProperty("number"));
        assertTrue(again.getJMSRedelivered());
        session.commit();
        consumer.close();
        assertNull(session.createConsumer(queue).receive(500));
    }

    @Test
    @DisplayName("small messages of the same producer keep their places before and behind it")
    void inOrder() throws Exception {
        Queue queue = queue("order");
        byte[] body = body(2);
        Session session = connect().createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(queue);
        producer.send(session.createTextMessage("before"));
        send(session, queue, body, 1);
        producer.send(session.createTextMessage("behind"));
        MessageConsumer consumer = session.createConsumer(queue);
        assertEquals("before", consumer.receive(WAIT_MS).getBody(String.class));
        assertBody(body, consumer.receive(WAIT_MS));
        assertEquals("behind", consumer.receive(WAIT_MS).getBody(String.class));
    }
}

package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;

import jakarta.jms.Connection;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Transacted sessions by AMQP: the coordinator behind them. */
class QpidTransactionTest extends QpidTest {
    @Test
    void sendsAreSeenOnceCommitted() throws Exception {
        Session session = transacted(connect());
        Queue queue = session.createQueue(unique("commit"));
        MessageConsumer consumer = autoAcknowledge(connect()).createConsumer(queue);
        send(session, queue, "a", "b");
        assertSilent(consumer);
        session.commit();
        assertEquals(List.of("a", "b"), texts(consumer, 2));
    }

    @Test
    void sendsAreNeverSeenIfRolledBack() throws Exception {
        Session session = transacted(connect());
        Queue queue = session.createQueue(unique("rollback"));
        send(session, queue, "a");
        session.rollback();
        send(session, queue, "b");
        session.commit();
        assertEquals(List.of("b"), texts(autoAcknowledge(connect()).createConsumer(queue), 1));
        assertEmpty(queue);
    }

    @Test
    void receivesAreDoneOnceCommitted() throws Exception {
        Connection connection = connect();
        Session session = transacted(connection);
        Queue queue = session.createQueue(unique("receive"));
        send(autoAcknowledge(connection), queue, "a", "b");
        assertEquals(List.of("a", "b"), texts(session.createConsumer(queue), 2));
        session.commit();
        connection.close();
        assertEmpty(queue);
    }

    @Test
    void receivesThatAreRolledBackComeAgainMarked() throws Exception {
        Connection connection = connect();
        Session session = transacted(connection);
        Queue queue = session.createQueue(unique("again"));
        send(autoAcknowledge(connection), queue, "a", "b", "c");
        MessageConsumer consumer = session.createConsumer(queue);
        assertEquals(List.of("a 1", "b 1"), deliveries(consumer, 2));
        session.rollback();
        assertEquals(List.of("a 2*", "b 2*", "c 1"), deliveries(consumer, 3));
        session.commit();
        connection.close();
        assertEmpty(queue);
    }

    @Test
    void aTransactionOverQueueAndTopicIsAllOrNothing() throws Exception {
        Connection connection = connect();
        Session session = transacted(connection);
        Queue from = session.createQueue(unique("from"));
        Queue to = session.createQueue(unique("to"));
        Topic topic = session.createTopic(unique("topic"));
        MessageConsumer subscriber = autoAcknowledge(connect()).createConsumer(topic);
        send(autoAcknowledge(connection), from, "in");
        MessageConsumer consumer = session.createConsumer(from);
        for (boolean commit : new boolean[] {false, true}) {
            assertEquals("in", text(receive(consumer)));
            send(session, to, "out " + commit);
            send(session, topic, "news " + commit);
            if (commit) {
                session.commit();
            } else {
                session.rollback();
            }
        }
        assertEquals(List.of("out true"), texts(autoAcknowledge(connect()).createConsumer(to), 1));
        assertEquals(List.of("news true"), texts(subscriber, 1));
        connection.close();
        assertEmpty(from);
        assertEmpty(to);
    }

    @Test
    void aConnectionThatEndsRollsBack() throws Exception {
        Connection connection = connect();
        Session session = transacted(connection);
        Queue queue = session.createQueue(unique("closed"));
        send(autoAcknowledge(connection), queue, "a");
        assertEquals("a", text(receive(session.createConsumer(queue))));
        send(session, queue, "b");
        connection.close();
        assertEquals(List.of("a"), texts(autoAcknowledge(connect()).createConsumer(queue), 1));
        assertEmpty(queue);
    }
}

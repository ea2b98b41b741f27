package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import jakarta.jms.CompletionListener;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.InvalidClientIDException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Queues by AMQP: acknowledgement, redelivery, credit, browsing, selectors, replies, large messages. */
class QpidQueueTest extends QpidTest {
    @Test
    void messagesOfAProducerComeInOrder() throws Exception {
        Session session = autoAcknowledge(connect());
        Queue queue = session.createQueue(unique("order"));
        String[] texts = IntStream.range(0, 2500).mapToObj(number -> "m" + number).toArray(String[]::new);
        send(session, queue, texts);
        assertEquals(List.of(texts), texts(session.createConsumer(queue), texts.length));
        assertEmpty(queue);
    }

    @Test
    void asynchronousSendsCompleteInOrder() throws Exception {
        Session session = autoAcknowledge(connect());
        Queue queue = session.createQueue(unique("async"));
        MessageProducer producer = session.createProducer(queue);
        LinkedBlockingQueue<String> completed = new LinkedBlockingQueue<>();
        CompletionListener listener = new CompletionListener() {
            @Override
            public void onCompletion(Message message) {
                try {
                    completed.add(text(message));
                } catch (JMSException unreadable) {
                    completed.add(unreadable.toString());
                }
            }

            @Override
            public void onException(Message message, Exception failure) {
                completed.add(failure.toString());
            }
        };
        String[] texts = numbered("m", 100);
        for (String text : texts) {
            producer.send(session.createTextMessage(text), listener);
        }
        for (String text : texts) {
            assertEquals(text, completed.poll(PATIENCE_MS, TimeUnit.MILLISECONDS));
        }
        assertEquals(List.of(texts), texts(session.createConsumer(queue), texts.length));
    }

    @Test
    void sendsThatNobodyWaitsForAllArrive() throws Exception {
        Connection connection = connect("jms.forceAsyncSend=true", "jms.presettlePolicy.presettleProducers=true");
        Session session = autoAcknowledge(connection);
        Queue queue = session.createQueue(unique("async"));
        String[] texts = IntStream.range(0, 1500).mapToObj(number -> "m" + number).toArray(String[]::new);
        send(session, queue, texts);
        assertEquals(List.of(texts), texts(session.createConsumer(queue), texts.length));
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 100_000, 3_000_000, 20_000_000})
    void bodiesOfAnySizeComeWhole(int size) throws Exception {
        Session session = autoAcknowledge(connect());
        Queue queue = session.createQueue(unique("size"));
        String body = "x".repeat(size - 1) + "!";
        send(session, queue, body);
        assertEquals(body, text(receive(session.createConsumer(queue))));
    }

    @ParameterizedTest
    @ValueSource(ints = {Session.AUTO_ACKNOWLEDGE, Session.CLIENT_ACKNOWLEDGE, Session.DUPS_OK_ACKNOWLEDGE})
    void whatIsAcknowledgedDoesNotComeAgain(int mode) throws Exception {
        Connection connection = connect();
        Session session = connection.createSession(false, mode);
        Queue queue = session.createQueue(unique("acknowledged"));
        send(session, queue, "a", "b", "c");
        MessageConsumer consumer = session.createConsumer(queue);
        for (String text : List.of("a", "b", "c")) {
            Message message = receive(consumer);
            assertEquals(text, text(message));
            message.acknowledge();
        }
        connection.close();
        assertEmpty(queue);
    }

    @Test
    void whatIsRecoveredComesAgainMarked() throws Exception {
        Session session = connect().createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Queue queue = session.createQueue(unique("recover"));
        send(session, queue, "a", "b");
        MessageConsumer consumer = session.createConsumer(queue);
        assertEquals(List.of("a 1", "b 1"), deliveries(consumer, 2));
        session.recover();
        assertEquals(List.of("a 2*", "b 2*"), deliveries(consumer, 2));
        session.recover();
        Message first = receive(consumer);
        assertEquals("a 3*", delivery(first));
    }

    @Test
    void whatAnotherConsumerLeavesUnacknowledgedComesToTheNext() throws Exception {
        Connection lost = connect();
        Session session = lost.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Queue queue = session.createQueue(unique("left"));
        send(session, queue, "a", "b");
        assertEquals("a", text(receive(session.createConsumer(queue))));
        lost.close();
        assertEquals(List.of("a", "b"), texts(autoAcknowledge(connect()).createConsumer(queue), 2));
    }

    @Test
    void aListenerGetsEverything() throws Exception {
        Session session = autoAcknowledge(connect());
        Queue queue = session.createQueue(unique("listener"));
        List<String> got = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch missing = new CountDownLatch(3);
        session.createConsumer(queue).setMessageListener(message -> {
            try {
                got.add(text(message));
            } catch (Exception failed) {
                got.add(failed.toString());
            }
            missing.countDown();
        });
        send(autoAcknowledge(connect()), queue, "a", "b", "c");
        missing.await(PATIENCE_MS, TimeUnit.MILLISECONDS);
        assertEquals(List.of("a", "b", "c"), got);
    }

    @Test
    void consumersWithoutPrefetchTakeOneMessageEach() throws Exception {
        Connection connection = connect("jms.prefetchPolicy.all=0");
        Session session = autoAcknowledge(connection);
        Queue queue = session.createQueue(unique("pull"));
        MessageConsumer first = session.createConsumer(queue);
        MessageConsumer second = session.createConsumer(queue);
        assertNull(first.receiveNoWait(), "nothing is there");
        assertSilent(second);
        send(session, queue, "a", "b");
        assertEquals("a", text(receive(first)));
        assertEquals("b", text(receive(second)));
        assertNull(first.receiveNoWait(), "nothing is left");
    }

    @Test
    void aBrowserSeesEverythingAndTakesNothing() throws Exception {
        Session session = autoAcknowledge(connect());
        Queue queue = session.createQueue(unique("browse"));
        send(session, queue, "a", "b", "c");
        for (int round = 0; round < 2; round++) {
            QueueBrowser browser = session.createBrowser(queue);
            List<String> seen = new ArrayList<>();
            for (Object message : Collections.list(browser.getEnumeration())) {
                seen.add(text((TextMessage) message));
            }
            assertEquals(List.of("a", "b", "c"), seen);
            browser.close();
        }
        assertEquals(List.of("a", "b", "c"), texts(session.createConsumer(queue), 3));
    }

    @Test
    void aSelectorTakesWhatMatchesAndLeavesTheRest() throws Exception {
        Session session = autoAcknowledge(connect());
        Queue queue = session.createQueue(unique("selector"));
        MessageProducer producer = session.createProducer(queue);
        for (int number = 0; number < 6; number++) {
            Message message = session.createTextMessage("m" + number);
            message.setIntProperty("number", number);
            message.setJMSType(number % 2 == 0 ? "even" : "odd");
            producer.send(message);
        }
        MessageConsumer even = session.createConsumer(queue, "JMSType = 'even' AND number > 1");
        assertEquals(List.of("m2", "m4"), texts(even, 2));
        assertSilent(even);
        even.close();
        assertEquals(List.of("m0", "m1", "m3", "m5"), texts(session.createConsumer(queue), 4));
    }

    @Test
    void priorityExpiryAndModeReachTheConsumer() throws Exception {
        Session session = autoAcknowledge(connect());
        Queue queue = session.createQueue(unique("headers"));
        MessageProducer producer = session.createProducer(queue);
        producer.send(session.createTextMessage("short"), DeliveryMode.PERSISTENT, 4, 1);
        producer.send(session.createTextMessage("low"), DeliveryMode.NON_PERSISTENT, 1, 60_000);
        producer.send(session.createTextMessage("high"), DeliveryMode.PERSISTENT, 8, 0);
        Thread.sleep(50);
        MessageConsumer consumer = session.createConsumer(queue);
        Message high = receive(consumer);
        assertEquals("high 8 2 0", text(high) + " " + high.getJMSPriority() + " " + high.getJMSDeliveryMode()
                + " " + high.getJMSExpiration());
        Message low = receive(consumer);
        assertEquals("low 1 1", text(low) + " " + low.getJMSPriority() + " " + low.getJMSDeliveryMode());
        assertEquals(low.getJMSTimestamp() + 60_000, low.getJMSExpiration());
        assertSilent(consumer);
    }

    @Test
    void aRequestIsAnsweredOverATemporaryQueue() throws Exception {
        Connection connection = connect();
        Session session = autoAcknowledge(connection);
        Queue requests = session.createQueue(unique("requests"));
        TemporaryQueue replies = session.createTemporaryQueue();
        Message request = session.createTextMessage("ping");
        request.setJMSReplyTo(replies);
        session.createProducer(requests).send(request);

        Session server = autoAcknowledge(connect());
        Message received = receive(server.createConsumer(requests));
        Message reply = server.createTextMessage("pong");
        reply.setJMSCorrelationID(received.getJMSMessageID());
        // A producer without a destination: each message says where it goes.
        server.createProducer(null).send(received.getJMSReplyTo(), reply);

        MessageConsumer consumer = session.createConsumer(replies);
        Message answer = receive(consumer);
        assertEquals("pong", text(answer));
        assertEquals(request.getJMSMessageID(), answer.getJMSCorrelationID());
        consumer.close();
        replies.delete();
    }

    @Test
    void aClientIdHasOneConnection() throws Exception {
        String id = unique("client");
        JmsConnectionFactory factory = factory("jms.clientID=" + id);
        Connection first = closing(factory.createConnection());
        first.start();
        assertThrows(InvalidClientIDException.class, () -> closing(factory.createConnection()).start());
        first.close();
        closing(factory.createConnection()).start();
    }
}

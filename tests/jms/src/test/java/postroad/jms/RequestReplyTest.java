package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueConnection;
import jakarta.jms.QueueRequestor;
import jakarta.jms.QueueSession;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TemporaryTopic;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.FieldSource;
import org.junit.jupiter.params.provider.MethodSource;

/** JMS 2.0 section 6.2.3 (temporary destinations) and 6.3.7 (request and reply). */
@DisplayName("JMS 6.2.3, 6.3.7: temporary destinations, request and reply")
class RequestReplyTest extends PlainTest {
    private static final int CLIENTS = 10;
    private static final int REQUESTS = 20;

    static List<Arguments> optionsAndKinds() {
        return optionsAnd("queue", "topic");
    }

    static List<Arguments> optionsAndEnds() {
        return optionsAnd("deleted", "connection closed", "socket broken");
    }

    private static List<Arguments> optionsAnd(String... others) {
        return HOW_TEMPORARIES_ARE_KNOWN.stream()
                .flatMap(option -> java.util.Arrays.stream(others).map(other -> Arguments.of(option, other))).toList();
    }

    /** Answers each request with its text in capitals until the connection is closed. */
    private Connection serve(Queue requests, String option) throws JMSException {
        Connection connection = connect(option);
        Session session = autoAcknowledge(connection);
        MessageProducer replies = session.createProducer(null);
        session.createConsumer(requests).setMessageListener(request -> {
            try {
                Message reply = session.createTextMessage(text(request).toUpperCase(java.util.Locale.ROOT));
                reply.setJMSCorrelationID(request.getJMSCorrelationID());
                replies.send(request.getJMSReplyTo(), reply);
            } catch (JMSException failed) {
                throw new IllegalStateException(failed);
            }
        });
        return connection;
    }

    @ParameterizedTest(name = "options: {0}, temporary {1}")
    @MethodSource("optionsAndKinds")
    @DisplayName("JMS 6.3.7: ten clients at once each get their own replies")
    void tenClientsAtOnce(String option, String kind) throws Exception {
        Queue requests = queue("requests");
        serve(requests, option);
        serve(requests, option);
        try (Clients clients = new Clients()) {
            for (int client = 0; client < CLIENTS; client++) {
                String name = "client " + client + " request ";
                clients.run(() -> {
                    askManyTimes(requests, option, kind, name);
                    return null;
                });
            }
            clients.join(50);
        }
    }

    private void askManyTimes(Queue requests, String option, String kind, String name) throws Exception {
        Session session = autoAcknowledge(connect(option));
        Destination replyTo = kind.equals("queue") ? session.createTemporaryQueue() : session.createTemporaryTopic();
        MessageConsumer replies = session.createConsumer(replyTo);
        MessageProducer producer = session.createProducer(requests);
        for (int request = 0; request < REQUESTS; request++) {
            Message message = session.createTextMessage(name + request);
            message.setJMSReplyTo(replyTo);
            message.setJMSCorrelationID(name + request);
            producer.send(message);
            Message reply = receive(replies);
            assertEquals((name + request).toUpperCase(java.util.Locale.ROOT), text(reply));
            assertEquals(name + request, reply.getJMSCorrelationID());
        }
    }

    @ParameterizedTest(name = "options: {0}")
    @FieldSource("HOW_TEMPORARIES_ARE_KNOWN")
    @DisplayName("JMS 6.3.7: a temporary queue for each request, deleted after it")
    void temporaryQueuePerRequest(String option) throws Exception {
        Queue requests = queue("requests");
        serve(requests, option);
        Session session = autoAcknowledge(connect(option));
        Set<String> names = new HashSet<>();
        for (int request = 0; request < REQUESTS; request++) {
            TemporaryQueue replyTo = session.createTemporaryQueue();
            names.add(replyTo.getQueueName());
            MessageConsumer replies = session.createConsumer(replyTo);
            Message message = session.createTextMessage("r" + request);
            message.setJMSReplyTo(replyTo);
            session.createProducer(requests).send(message);
            assertEquals("R" + request, text(receive(replies)));
            replies.close();
            replyTo.delete();
        }
        assertEquals(REQUESTS, names.size(), "each temporary queue has a name of its own");
    }

    @Test
    @DisplayName("JMS 6.3.7: QueueRequestor")
    void queueRequestor() throws Exception {
        Queue requests = queue("requests");
        serve(requests, HOW_TEMPORARIES_ARE_KNOWN.get(0));
        QueueSession session = ((QueueConnection) connect()).createQueueSession(false, Session.AUTO_ACKNOWLEDGE);
        QueueRequestor requestor = new QueueRequestor(session, requests);
        assertEquals("PING", text(requestor.request(session.createTextMessage("ping"))));
        requestor.close();
    }

    @ParameterizedTest(name = "options: {0}")
    @FieldSource("HOW_TEMPORARIES_ARE_KNOWN")
    @DisplayName("JMS 6.2.3: another connection may not consume from a temporary destination")
    void onlyTheOwnerConsumes(String option) throws Exception {
        Session owner = autoAcknowledge(connect(option));
        Session other = autoAcknowledge(connect(option));
        for (Destination destination : new Destination[] {
                owner.createTemporaryQueue(), owner.createTemporaryTopic()}) {
            assertThrows(InvalidDestinationException.class, () -> other.createConsumer(destination));
            assertNotNull(owner.createConsumer(destination));
        }
    }

    @Test
    @DisplayName("JMS 6.2.3: the owner's other sessions may consume from a temporary destination")
    void ownersOtherSessionConsumes() throws Exception {
        Connection connection = connect();
        TemporaryQueue destination = autoAcknowledge(connection).createTemporaryQueue();
        MessageConsumer consumer = autoAcknowledge(connection).createConsumer(destination);
        sendOnceKnown(autoAcknowledge(connect()), destination, "m");
        assertEquals("m", text(receive(consumer)));
    }

    @Test
    @DisplayName("JMS 6.2.3: delete fails while a consumer is attached")
    void deleteWithConsumerFails() throws Exception {
        Session session = autoAcknowledge(connect());
        TemporaryQueue queue = session.createTemporaryQueue();
        MessageConsumer fromQueue = session.createConsumer(queue);
        assertThrows(JMSException.class, queue::delete);
        send(session, queue, "still works");
        assertEquals("still works", text(receive(fromQueue)));
        fromQueue.close();
        queue.delete();
        TemporaryTopic topic = session.createTemporaryTopic();
        MessageConsumer fromTopic = session.createConsumer(topic);
        assertThrows(JMSException.class, topic::delete);
        fromTopic.close();
        topic.delete();
    }

    @ParameterizedTest(name = "options: {0}, {1}")
    @MethodSource("optionsAndEnds")
    @DisplayName("JMS 6.2.3: a temporary queue is gone once it is deleted or its connection ends")
    void sendToGoneQueueFails(String option, String how) throws Exception {
        Connection owner = breakable(option);
        TemporaryQueue queue = autoAcknowledge(owner).createTemporaryQueue();
        Session sender = autoAcknowledge(connect(option));
        sendOnceKnown(sender, queue, "it exists");
        switch (how) {
            case "deleted" -> queue.delete();
            case "connection closed" -> owner.close();
            default -> breakOff(owner);
        }
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (true) {
            try {
                send(sender, queue, "too late");
            } catch (JMSException refused) {
                return;
            }
            // The end of a socket, and the news of it, take a moment to arrive.
            if (System.currentTimeMillis() > end) {
                throw new AssertionError("sending to a temporary queue still works after it was " + how);
            }
            Thread.sleep(20);
        }
    }

    /** Sends as soon as the sender's connection has heard of the destination: the client refuses until then. */
    private static void sendOnceKnown(Session sender, Destination destination, String text) throws Exception {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (true) {
            try {
                send(sender, destination, text);
                return;
            } catch (InvalidDestinationException unknown) {
                if (System.currentTimeMillis() > end) {
                    throw new AssertionError("no advisory told the sender of " + destination, unknown);
                }
                Thread.sleep(5);
            }
        }
    }

    @Test
    @DisplayName("JMS 6.2.3: messages in a deleted temporary queue are dropped, and the name is not reused")
    void deletedContentIsGone() throws Exception {
        Session session = autoAcknowledge(connect());
        TemporaryQueue first = session.createTemporaryQueue();
        send(session, first, "dropped");
        first.delete();
        TemporaryQueue second = session.createTemporaryQueue();
        assertSilent(session.createConsumer(second));
    }
}

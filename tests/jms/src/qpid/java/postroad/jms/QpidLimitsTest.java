package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.ResourceAllocationException;
import jakarta.jms.Session;
import jakarta.jms.TransactionRolledBackException;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Queues and transactions at their limits, as a client of AMQP sees them. */
@NeedsOwnBroker
class QpidLimitsTest extends QpidTest {
    private static final long TRANSACTION_MS = 1_000;
    private static final String CONFIGURATION = """
            [limits]
            transaction_ms = 1000
            [[policy]]
            destination = "queue://block.>"
            messages_max = 2
            [[policy]]
            destination = "queue://fail.>"
            messages_max = 2
            at_limit = "fail"
            at_limit_wait_ms = 200
            [[tenant]]
            name = "acme"
            destinations = ["queue://acme.>"]
            messages_max = 2
            at_limit = "fail"
            at_limit_wait_ms = 200
            [[tenant]]
            name = "patient"
            destinations = ["queue://patient.>"]
            messages_max = 2
            [[policy]]
            destination = "queue://ring.>"
            messages_max = 2
            at_limit = "drop-oldest"
            [[policy]]
            destination = "queue://cup.>"
            messages_max = 2
            at_limit = "drop-newest"
            """;

    private static Broker broker;

    @BeforeAll
    static void launch() throws Exception {
        broker = Broker.launch("qpid-limits", CONFIGURATION);
    }

    @AfterAll
    static void close() throws Exception {
        broker.close();
    }

    private Connection connection() throws JMSException {
        Connection connection = closing(factoryFor(broker.amqpUrl()).createConnection());
        connection.start();
        return connection;
    }

    private Queue queueOf(Session session, String kind) throws JMSException {
        return session.createQueue(kind + "." + unique("queue"));
    }

    private static CompletableFuture<Void> sending(Session session, Queue queue, String text) {
        return CompletableFuture.runAsync(() -> {
            try {
                send(session, queue, text);
            } catch (JMSException failed) {
                throw new IllegalStateException(failed);
            }
        });
    }

    @Test
    void aSendAtALimitThatBlocksWaitsAndOthersOfItsConnectionGoOn() throws Exception {
        Connection connection = connection();
        Session blocked = autoAcknowledge(connection);
        Queue queue = queueOf(blocked, "block");
        send(blocked, queue, "m0", "m1");
        CompletableFuture<Void> sent = sending(blocked, queue, "m2");
        Thread.sleep(SILENCE_MS);
        assertFalse(sent.isDone(), "the producer must wait");
        Session other = autoAcknowledge(connection);
        send(other, queueOf(other, "elsewhere"), "others go on");
        assertEquals(List.of("m0", "m1", "m2"), texts(other.createConsumer(queue), 3));
        sent.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
    }

    @Test
    void aSendThatWaitsTooLongIsAResourceAllocationExceptionAndTheProducerGoesOn() throws Exception {
        Session session = autoAcknowledge(connection());
        Queue queue = queueOf(session, "fail");
        send(session, queue, "m0", "m1");
        MessageProducer producer = session.createProducer(queue);
        long start = System.nanoTime();
        ResourceAllocationException refused = assertThrows(ResourceAllocationException.class,
                () -> producer.send(session.createTextMessage("m2")));
        assertTrue(TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start) >= 190);
        assertTrue(refused.getMessage().contains("is at the limit"), refused.getMessage());
        MessageConsumer consumer = session.createConsumer(queue);
        assertEquals(List.of("m0", "m1"), texts(consumer, 2));
        producer.send(session.createTextMessage("m3"));
        assertEquals("m3", text(receive(consumer)));
    }

    @Test
    void allQueuesOfATenantHaveOneLimitTogetherAndOthersGoOn() throws Exception {
        Session session = autoAcknowledge(connection());
        Queue first = queueOf(session, "acme");
        Queue second = queueOf(session, "acme");
        send(session, first, "m0", "m1");
        MessageProducer producer = session.createProducer(second);
        ResourceAllocationException refused = assertThrows(ResourceAllocationException.class,
                () -> producer.send(session.createTextMessage("m2")));
        assertTrue(refused.getMessage().contains("the tenant acme is at the limit"), refused.getMessage());
        Queue other = queueOf(session, "elsewhere");
        send(session, other, "o0", "o1", "o2");
        assertEquals(List.of("o0", "o1", "o2"), texts(session.createConsumer(other), 3));
        assertEquals(List.of("m0"), texts(session.createConsumer(first), 1));
        producer.send(session.createTextMessage("m3"));
        assertEquals(List.of("m3"), texts(session.createConsumer(second), 1));
    }

    @Test
    void aSendAtTheLimitOfATenantThatWaitsIsTakenOnceAnotherQueueOfItHasRoom() throws Exception {
        Connection connection = connection();
        Session blocked = autoAcknowledge(connection);
        Queue first = queueOf(blocked, "patient");
        Queue second = queueOf(blocked, "patient");
        send(blocked, first, "m0", "m1");
        CompletableFuture<Void> sent = sending(blocked, second, "m2");
        Thread.sleep(SILENCE_MS);
        assertFalse(sent.isDone(), "the producer must wait");
        Session other = autoAcknowledge(connection);
        assertEquals(List.of("m0", "m1"), texts(other.createConsumer(first), 2));
        sent.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
        assertEquals(List.of("m2"), texts(other.createConsumer(second), 1));
    }

    @ParameterizedTest
    @CsvSource({"ring, m2, m3", "cup, m0, m1"})
    void whatIsTooMuchLeavesWithoutAWordToItsProducer(String kind, String first, String second) throws Exception {
        Session session = autoAcknowledge(connection());
        Queue queue = queueOf(session, kind);
        send(session, queue, "m0", "m1", "m2", "m3");
        MessageConsumer consumer = session.createConsumer(queue);
        assertEquals(List.of(first, second), texts(consumer, 2));
        assertSilent(consumer);
    }

    @Test
    void aTransactionThatWouldExceedALimitIsRolledBackWhole() throws Exception {
        Connection connection = connection();
        Session session = autoAcknowledge(connection);
        Queue queue = queueOf(session, "block");
        Queue other = queueOf(session, "elsewhere");
        send(session, queue, "m0", "m1");
        Session transacted = transacted(connection);
        send(transacted, other, "with it");
        assertThrows(JMSException.class, () -> {
            send(transacted, queue, "m2");
            transacted.commit();
        });
        assertSilent(session.createConsumer(other));
        assertEquals(List.of("m0", "m1"), texts(session.createConsumer(queue), 2));
    }

    @Test
    void aTransactionThatIsOpenForTooLongIsRolledBackAndItsCommitSaysSo() throws Exception {
        Connection connection = connection();
        Session transacted = transacted(connection);
        Queue queue = queueOf(transacted, "elsewhere");
        send(transacted, queue, "too late");
        Thread.sleep(TRANSACTION_MS + 500);
        TransactionRolledBackException refused = assertThrows(TransactionRolledBackException.class, transacted::commit);
        assertTrue(refused.getMessage().contains("1000 ms"), refused.getMessage());
        send(transacted, queue, "in time");
        transacted.commit();
        MessageConsumer consumer = autoAcknowledge(connection).createConsumer(queue);
        assertEquals(List.of("in time"), texts(consumer, 1));
        assertSilent(consumer);
    }
}

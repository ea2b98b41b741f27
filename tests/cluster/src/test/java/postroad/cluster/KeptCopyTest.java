package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.TransactionRolledBackException;
import java.util.stream.Collectors;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.command.ActiveMQMessage;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * ActiveMQ's client delivers a message of a transaction that was rolled back again by itself, after a delay. If it gets another connection
 * meanwhile, it has two copies: that one, and the one that the broker sends over the new connection. The first commit is for both.
 */
@Timeout(100)
@DisplayName("kept copies: a message that the client hands out twice is committed once")
class KeptCopyTest {
    private static final int WITHIN_MS = 20_000;
    /** Longer than a transfer takes on a busy machine. */
    private static final int REDELIVERY_MS = 4000;

    private Cluster cluster;

    @BeforeEach
    void startNodes() throws Exception {
        cluster = new Cluster("kept", node -> "");
    }

    @AfterEach
    void endNodes() throws Exception {
        cluster.close();
    }

    private ActiveMQConnectionFactory factory() {
        String urls = cluster.nodes.stream().map(Node::url).collect(Collectors.joining(","));
        return new ActiveMQConnectionFactory("failover:(" + urls + ")?maxReconnectDelay=50&jms.checkForDuplicates=false"
                + "&jms.redeliveryPolicy.maximumRedeliveries=1&jms.redeliveryPolicy.initialRedeliveryDelay=" + REDELIVERY_MS);
    }

    /** When the broker sent this copy. */
    private static long sentMs(Message message) {
        return ((ActiveMQMessage) message).getBrokerOutTime();
    }

    private static void send(Connection connection) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        session.createProducer(session.createQueue("kept")).send(session.createTextMessage("one"));
        session.close();
    }

    @Test
    @DisplayName("a rollback, and another leader before the client delivers its copy again")
    void aRollbackAndAnotherLeader() throws Exception {
        Node leader = cluster.leader();
        Node next = cluster.followers(leader).get(0);
        try (Connection connection = factory().createConnection()) {
            connection.start();
            Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
            MessageConsumer consumer = session.createConsumer(session.createQueue("kept"));
            send(connection);
            long firstSentMs = sentMs(consumer.receive(WITHIN_MS));
            session.rollback();
            String printed = leader.ctl("cluster", "transfer", next.name);
            assertTrue(printed.startsWith(next.name + " leads after"), printed);

            Message kept = consumer.receive(WITHIN_MS);
            assertEquals(firstSentMs, sentMs(kept), "the copy of the former connection comes first");
            session.commit();
            long committedMs = System.currentTimeMillis();

            // The client's audit is off, so it hands out the other copy, too, and after a failure that one again.
            for (int delivery = 1; delivery <= 2; delivery++) {
                Message other = consumer.receive(WITHIN_MS);
                assertNotNull(other, "delivery " + delivery + " of the copy of the present connection");
                assertTrue(firstSentMs < sentMs(other) && sentMs(other) <= committedMs,
                        "the broker sent a message after it was committed: sent " + sentMs(other) + ", committed " + committedMs);
                assertThrows(TransactionRolledBackException.class, session::commit, "a second commit of one message");
            }
        }
        // The client then calls it a poison message: it is none for the broker, which does not have it any more.
        String queue = "{destination=\"queue://kept\"}";
        assertEquals(0, next.metric("postroad_queue_depth" + queue));
        assertEquals(1, next.metric("postroad_queue_dequeued_total" + queue));
        assertEquals(0, next.metric("postroad_queue_dead_lettered_total" + queue));
    }
}

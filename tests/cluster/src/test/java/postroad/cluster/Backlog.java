package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.util.stream.Collectors;
import org.apache.activemq.ActiveMQConnectionFactory;

/** Large messages in a queue without a consumer, which fill the disks of the nodes. They are numbered. */
final class Backlog {
    private static final String QUEUE = "backlog";
    private static final int BODY_BYTES = 256 << 10;
    /** What all nodes take in before a disk is full that has no further space: two segments of 64 MiB, and more. */
    private static final int MORE_MAX = 1_200;

    private final Cluster cluster;
    private int sent;
    private int taken;

    Backlog(Cluster cluster) {
        this.cluster = cluster;
    }

    /** Messages so far. */
    int sent() {
        return sent;
    }

    private Connection connect() throws JMSException {
        String urls = cluster.nodes.stream().map(Node::url).collect(Collectors.joining(","));
        Connection connection = new ActiveMQConnectionFactory("failover:(" + urls + ")?maxReconnectDelay=200").createConnection();
        connection.start();
        return connection;
    }

    interface Refusal {
        /** Takes note of it. */
        void of(JMSException refusal) throws Exception;
    }

    /** Further messages, until the condition holds. */
    void pile(String event, Cluster.Condition until, Refusal refusal) throws Exception {
        int limit = sent + MORE_MAX;
        try (Connection connection = connect()) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createQueue(QUEUE));
            while (!until.holds()) {
                assertTrue(sent < limit, () -> "not after " + sent + " messages: " + event + "\n" + cluster.tails());
                cluster.requireClients();
                BytesMessage message = session.createBytesMessage();
                message.writeBytes(new byte[BODY_BYTES]);
                message.setIntProperty("number", sent);
                try {
                    producer.send(message);
                    sent++;
                } catch (JMSException refused) {
                    refusal.of(refused);
                }
            }
        }
    }

    void pile(String event, Cluster.Condition until) throws Exception {
        pile(event, until, refused -> {
            throw refused;
        });
    }

    /** Takes messages off, in order, until this many have been taken. */
    void take(int to) throws Exception {
        try (Connection connection = connect()) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(session.createQueue(QUEUE));
            for (; taken < to; taken++) {
                BytesMessage message = (BytesMessage) consumer.receive(Cluster.WITHIN_MS);
                assertNotNull(message, () -> "message " + taken + " of the backlog\n" + cluster.tails());
                assertEquals(taken, message.getIntProperty("number"));
            }
        }
    }
}

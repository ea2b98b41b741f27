package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import jakarta.jms.Connection;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Routes of a cluster, whose leader goes while copies wait for their next redelivery. */
@Timeout(150)
@DisplayName("routes apply after a change of the leader, and redelivery goes on")
class RoutesTest {
    private static final int PATIENCE_MS = 40_000;
    private static final int SILENCE_MS = 500;
    private static final String ROUTE = """
            [[policy]]
            destination = "queue://full"
            messages_max = 1

            [[route]]
            name = "both"
            from = "queue://in"
            set = { routed = true }
            redelivery_count = 10000
            redelivery_delay_ms = 200
            dead_letter_queue = "bad"
            to = [{ destination = "queue://open" }, { destination = "queue://full" }]
            """;

    private static void send(Session session, String queue, String text) throws Exception {
        MessageProducer producer = session.createProducer(session.createQueue(queue));
        producer.send(session.createTextMessage(text));
        producer.close();
    }

    /** How often each of this number of messages comes; no more are there. */
    private static Map<String, Integer> take(Session session, String queue, int count) throws Exception {
        MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
        Map<String, Integer> texts = new TreeMap<>();
        for (int n = 0; n < count; n++) {
            TextMessage message = (TextMessage) consumer.receive(PATIENCE_MS);
            assertNotNull(message, queue + " has " + texts);
            texts.merge(message.getText() + " " + message.getObjectProperty("routed"), 1, Integer::sum);
        }
        assertNull(consumer.receive(SILENCE_MS), queue);
        consumer.close();
        return texts;
    }

    @Test
    @DisplayName("each target has each message once")
    void theLeaderGoes() throws Exception {
        try (Cluster cluster = new Cluster("routes", node -> ROUTE)) {
            Node leader = cluster.leader();
            cluster.followers(leader);
            String urls = cluster.nodes.stream().map(Node::url).collect(Collectors.joining(","));
            Connection connection = new ActiveMQConnectionFactory("failover:(" + urls + ")?maxReconnectDelay=200").createConnection();
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            send(session, "full", "blocker");
            for (String text : List.of("a", "b", "c")) {
                send(session, "in", text);
            }
            leader.signal("KILL");
            leader.awaitEnd();
            cluster.leader(leader);
            for (String text : List.of("d", "e")) {
                send(session, "in", text);
            }
            Map<String, Integer> each = new TreeMap<>();
            List.of("a", "b", "c", "d", "e").forEach(text -> each.put(text + " true", 1));
            assertEquals(each, take(session, "open", 5));
            each.put("blocker null", 1);
            assertEquals(each, take(session, "full", 6));
            assertEquals(Map.of(), take(session, "in", 0));
            assertEquals(Map.of(), take(session, "bad", 0));
            connection.close();
        }
    }
}

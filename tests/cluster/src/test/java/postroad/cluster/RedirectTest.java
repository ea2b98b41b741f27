package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.List;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.MethodOrderer;
import org.junit.jupiter.api.Order;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestMethodOrder;
import org.junit.jupiter.api.Timeout;

/** Unmodified clients that know a follower only. */
@Timeout(150)
@DisplayName("redirect: a follower sends its clients to the leader")
@TestMethodOrder(MethodOrderer.OrderAnnotation.class)
class RedirectTest {
    private static Cluster cluster;
    private static Node leader;
    private static Node follower;

    @BeforeAll
    static void startNodes() throws Exception {
        cluster = new Cluster("redirect", () -> null);
        leader = cluster.leader();
        follower = cluster.followers(leader).get(0);
    }

    @AfterAll
    static void endNodes() throws Exception {
        cluster.close();
    }

    private static void sendAndReceive(Connection connection, String text) throws JMSException {
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue("redirect." + text);
        session.createProducer(queue).send(session.createTextMessage(text));
        TextMessage message = (TextMessage) session.createConsumer(queue).receive(Cluster.WITHIN_MS);
        assertEquals(text, message == null ? null : message.getText());
    }

    private static String failureOf(ConnectionFactory factory) {
        return assertThrows(JMSException.class, () -> {
            try (Connection connection = factory.createConnection()) {
                connection.start();
                connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            }
        }).getMessage();
    }

    @Test
    @Order(1)
    @DisplayName("OpenWire with failover: ConnectionControl moves the client")
    void failoverClientsMove() throws Exception {
        String url = "failover:(" + follower.url() + ")?timeout=" + Cluster.WITHIN_MS;
        try (Connection connection = new ActiveMQConnectionFactory(url).createConnection()) {
            sendAndReceive(connection, "openwire");
            assertEquals(leader.url(), ((ActiveMQConnection) connection).getBrokerInfo().getBrokerURL());
        }
    }

    @Test
    @Order(1)
    @DisplayName("OpenWire without failover: the error names the leader")
    void plainClientsAreToldTheLeader() {
        String message = failureOf(new ActiveMQConnectionFactory(follower.url()));
        String want = follower.name + " follows " + leader.name + ", which serves clients at " + leader.url();
        assertTrue(message.contains(want), message);
    }

    @Test
    @Order(1)
    @DisplayName("AMQP: the connection is closed by amqp:connection:redirect, and a client with failover follows it")
    void amqpClientsAreRedirected() throws Exception {
        String message = failureOf(new JmsConnectionFactory(follower.amqpUrl()));
        assertTrue(message.contains("which serves clients at " + leader.amqpUrl()), message);
        assertTrue(message.contains("amqp:connection:redirect"), message);
        String url = "failover:(" + follower.amqpUrl() + ")?failover.maxReconnectAttempts=50";
        try (Connection connection = new JmsConnectionFactory(url).createConnection()) {
            sendAndReceive(connection, "amqp");
        }
    }

    /** Runs curl, and returns what it printed. */
    private static String curl(String... arguments) throws Exception {
        List<String> command = new ArrayList<>(List.of("curl", "--silent", "--max-time", "20"));
        command.addAll(List.of(arguments));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        String printed = new String(process.getInputStream().readAllBytes());
        process.waitFor();
        return printed;
    }

    @Test
    @Order(1)
    @DisplayName("HTTP: IronMQ posts follow a 307, and a request that is signed for its host gets 503 with the reason")
    void httpClientsAreRedirected() throws Exception {
        String path = "/3/projects/p/queues/redirected/messages";
        String post = "{\"messages\":[{\"body\":\"by a follower\"}]}";
        String posted = curl("--location", "--data", post, follower.httpUrl() + path);
        assertTrue(posted.contains("Messages put on queue."), posted);
        String got = curl("--location", leader.httpUrl() + path);
        assertTrue(got.contains("by a follower"), got);
        String once = curl("--include", "--data", post, follower.httpUrl() + path);
        assertTrue(once.startsWith("HTTP/1.1 307 "), once);
        assertTrue(once.contains("location: " + leader.httpUrl() + path), once);
        String sqs = curl("--include", "--header", "x-amz-target: AmazonSQS.ListQueues", "--data", "{}", follower.httpUrl());
        assertTrue(sqs.startsWith("HTTP/1.1 503 ") && sqs.contains("retry-after: 1"), sqs);
        assertTrue(sqs.contains("which serves clients at " + leader.httpUrl()), sqs);
    }

    @Test
    @Order(2)
    @DisplayName("a minority refuses clients with the reason, in health too, and serves again with a majority")
    void aMinorityRefuses() throws Exception {
        for (Node node : cluster.nodes) {
            if (node != follower) {
                node.signal("KILL");
                node.awaitEnd();
            }
        }
        String reason = follower.name + " reaches 1 of 3 nodes, itself included; without 2 of them nothing durable is confirmed";
        cluster.await("health says that there is no majority", () -> follower.readiness().contains(reason));
        for (ConnectionFactory factory : List.of(new ActiveMQConnectionFactory(follower.url()), new JmsConnectionFactory(follower.amqpUrl()))) {
            String message = failureOf(factory);
            assertTrue(message.contains(reason), message);
        }
        String posted = curl("--include", "--data", "{}", follower.httpUrl() + "/3/projects/p/queues/q/messages");
        assertTrue(posted.startsWith("HTTP/1.1 503 ") && posted.contains("retry-after: 1") && posted.contains(reason), posted);
        leader.start();
        Node next = cluster.leader();
        try (Connection connection = new ActiveMQConnectionFactory("failover:(" + follower.url() + "," + leader.url() + ")").createConnection()) {
            sendAndReceive(connection, "again");
        }
        assertTrue(next.isAlive());
    }
}

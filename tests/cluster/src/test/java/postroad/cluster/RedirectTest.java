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
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
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
@DisplayName("redirect: clients of a follower are served by the leader")
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
    @DisplayName("OpenWire without failover: the follower carries the connection to the leader")
    void plainClientsAreCarried() throws Exception {
        try (Connection connection = new ActiveMQConnectionFactory(follower.url()).createConnection()) {
            sendAndReceive(connection, "plain");
            // It was not moved.
            String remote = ((ActiveMQConnection) connection).getTransport().getRemoteAddress();
            assertTrue(remote.startsWith(follower.url()), remote);
        }
    }

    @Test
    @Order(1)
    @DisplayName("AMQP: the follower carries the connection to the leader, with failover and without")
    void amqpClientsAreCarried() throws Exception {
        try (Connection connection = new JmsConnectionFactory(follower.amqpUrl()).createConnection()) {
            sendAndReceive(connection, "amqp.plain");
        }
        String url = "failover:(" + follower.amqpUrl() + ")?failover.maxReconnectAttempts=50";
        try (Connection connection = new JmsConnectionFactory(url).createConnection()) {
            sendAndReceive(connection, "amqp.failover");
        }
    }

    @Test
    @Order(1)
    @DisplayName("a carried connection costs a fraction of a millisecond, which is printed")
    void theCostOfCarrying() throws Exception {
        System.out.println("durable sends, one at a time, ms each: direct " + millisASend(leader) + ", carried " + millisASend(follower));
    }

    private static double millisASend(Node node) throws Exception {
        try (Connection connection = new ActiveMQConnectionFactory(node.url()).createConnection()) {
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            var producer = session.createProducer(session.createQueue("redirect.cost"));
            TextMessage message = session.createTextMessage("x".repeat(1024));
            long began = 0;
            for (int number = -100; number < 400; number++) {
                began = number == 0 ? System.nanoTime() : began;
                producer.send(message);
            }
            return (System.nanoTime() - began) / 400 / 1_000 / 1e3;
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
    @DisplayName("HTTP: IronMQ and SQS requests are carried, and a follower answers for its own state")
    void httpClientsAreCarried() throws Exception {
        String path = "/3/projects/p/queues/carried/messages";
        String posted = curl("--data", "{\"messages\":[{\"body\":\"by a follower\"}]}", follower.httpUrl() + path);
        assertTrue(posted.contains("Messages put on queue."), posted);
        String got = curl(leader.httpUrl() + path);
        assertTrue(got.contains("by a follower"), got);
        String sqs = curl("--include", "--header", "x-amz-target: AmazonSQS.ListQueues", "--data", "{}", follower.httpUrl());
        assertTrue(sqs.startsWith("HTTP/1.1 200 "), sqs);
        assertTrue(follower.readiness().startsWith("follower: "), follower.readiness());
        assertTrue(follower.cluster().contains("\"role\":\"follower\""), follower.cluster());
    }

    @Test
    @Order(2)
    @DisplayName("a carried connection ends when another node leads, and the next one is served")
    void aCarriedConnectionEndsWithItsLeader() throws Exception {
        try (Connection connection = new JmsConnectionFactory(follower.amqpUrl()).createConnection()) {
            CountDownLatch ended = new CountDownLatch(1);
            connection.setExceptionListener(failure -> ended.countDown());
            connection.start();
            leader.signal("STOP");
            assertTrue(ended.await(Cluster.WITHIN_MS, TimeUnit.MILLISECONDS), "the client still waits for a leader that hangs");
        } finally {
            leader.signal("CONT");
        }
        leader = cluster.leader();
        follower = cluster.followers(leader).get(0);
        try (Connection connection = new JmsConnectionFactory(follower.amqpUrl()).createConnection()) {
            sendAndReceive(connection, "amqp.next");
        }
    }

    @Test
    @Order(3)
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
        String explained = follower.ctl("explain", "queue", "orders");
        assertTrue(explained.contains(reason), explained);
        leader.start();
        Node next = cluster.leader();
        try (Connection connection = new ActiveMQConnectionFactory("failover:(" + follower.url() + "," + leader.url() + ")").createConnection()) {
            sendAndReceive(connection, "again");
        }
        assertTrue(next.isAlive());
    }
}

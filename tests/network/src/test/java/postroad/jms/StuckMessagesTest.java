package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.InputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import jakarta.jms.Connection;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;

import org.apache.activemq.ActiveMQConnectionFactory;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** A message that waits for a link although a consumer there could have it raises an alarm with its cause. */
@Tag("postroad")
class StuckMessagesTest {
    private static String bridge(String url) {
        return "[[bridge]]\nname = 'east'\nto = ['" + url + "']\nlinks = 1\nretry_ms = 200\nretry_max_ms = 200\n";
    }

    private static Connection connect(String url) throws Exception {
        Connection connection = new ActiveMQConnectionFactory(url).createConnection();
        connection.start();
        return connection;
    }

    private static Session session(Connection connection) throws Exception {
        return connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    private static String row(Broker broker) throws Exception {
        return broker.command("ctl", "bridges", "--json");
    }

    private static long number(Broker broker, String member) throws Exception {
        Matcher matcher = Pattern.compile("\"" + member + "\":(\\d+)").matcher(row(broker));
        assertTrue(matcher.find(), member);
        return Long.parseLong(matcher.group(1));
    }

    private static double metric(Broker broker, String name) throws Exception {
        int offset = URI.create(broker.url()).getPort() - 61616;
        try (InputStream metrics = URI.create("http://127.0.0.1:" + (8161 + offset) + "/metrics").toURL().openStream()) {
            return new String(metrics.readAllBytes(), StandardCharsets.UTF_8).lines()
                    .filter(line -> line.startsWith(name + "{"))
                    .mapToDouble(line -> Double.parseDouble(line.substring(line.lastIndexOf(' ') + 1)))
                    .sum();
        }
    }

    private static void awaitCause(Broker broker, String cause) throws Exception {
        NetworkTest.eventually("messages wait for " + cause, () -> row(broker).contains("\"wait_cause\":\"" + cause + "\""));
    }

    @Test
    void aPeerThatStopsRaisesTheAlarmAndClearsIt() throws Exception {
        try (Broker east = Broker.launch("stuck-east");
                Broker west = Broker.launch("stuck-west", bridge(east.url()));
                Connection here = connect(west.url());
                Connection there = connect(east.url())) {
            MessageConsumer consumer = session(there).createConsumer(session(there).createQueue("out"));
            Session atWest = session(here);
            NetworkTest.send(atWest, atWest.createQueue("out"), 0, 10);
            NetworkTest.expect(consumer, 0, 10);
            assertFalse(west.log().contains("messages are stuck"), west.log());
            east.freeze();
            try {
                NetworkTest.send(atWest, atWest.createQueue("out"), 10, 20);
                awaitCause(west, "peer_silent");
                NetworkTest.eventually("all ten are stuck", () -> number(west, "stuck_messages") == 10);
                assertTrue(number(west, "longest_wait_ms") >= 1000);
                assertTrue(metric(west, "postroad_bridge_stuck_messages") == 10);
                assertTrue(metric(west, "postroad_bridge_longest_wait_seconds") >= 1);
                assertTrue(west.log().contains("messages are stuck"), west.log());
                assertTrue(west.command("ctl", "bridges").contains("peer_silent"), "the table has the cause");
            } finally {
                east.thaw();
            }
            NetworkTest.expect(consumer, 10, 20);
            awaitCause(west, "");
            NetworkTest.eventually("none is stuck", () -> metric(west, "postroad_bridge_stuck_messages") == 0);
            assertTrue(west.log().contains("messages are no longer stuck"), west.log());
        }
    }

    @Test
    void messagesThatWaitForALinkThatIsDownAreStuck() throws Exception {
        try (Broker east = Broker.launch("down-east");
                Broker west = Broker.launch("down-west", bridge(east.url()));
                Connection here = connect(west.url());
                Connection there = connect("failover:(" + east.url() + ")?maxReconnectDelay=200")) {
            MessageConsumer consumer = session(there).createConsumer(session(there).createQueue("out"));
            Session atWest = session(here);
            NetworkTest.send(atWest, atWest.createQueue("out"), 0, 10);
            NetworkTest.expect(consumer, 0, 10);
            east.kill();
            NetworkTest.send(atWest, atWest.createQueue("out"), 10, 20);
            awaitCause(west, "link_down");
            assertTrue(row(west).contains("\"wait_queue\":\"queue://out\""), row(west));
            // One that the peer has and did not confirm in time counts, too.
            NetworkTest.eventually("all ten are stuck", () -> number(west, "stuck_messages") >= 10);
            east.start();
            NetworkTest.expect(consumer, 10, 20);
            awaitCause(west, "");
        }
    }

    @Test
    void messagesThatWaitForConsumersWithoutCreditAreNotStuck() throws Exception {
        try (Broker east = Broker.launch("credit-east");
                Broker west = Broker.launch("credit-west", bridge(east.url()));
                Connection here = connect(west.url());
                Connection there = connect(east.url() + "?jms.prefetchPolicy.queuePrefetch=1")) {
            MessageConsumer consumer = session(there).createConsumer(session(there).createQueue("out"));
            Session atWest = session(here);
            NetworkTest.send(atWest, atWest.createQueue("out"), 0, 20);
            awaitCause(west, "no_credit");
            assertTrue(number(west, "stuck_messages") == 0, row(west));
            assertFalse(west.log().contains("messages are stuck"), west.log());
            NetworkTest.expect(consumer, 0, 20);
            awaitCause(west, "");
        }
    }
}

package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

import jakarta.jms.Connection;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;

import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.broker.BrokerPluginSupport;
import org.apache.activemq.broker.ProducerBrokerExchange;
import org.apache.activemq.command.Message;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Each cause for which messages are stuck before a link, brought about and taken away again. */
class StuckCausesTest {
    private static final int MESSAGES = 10;

    private static String bridge(String name, String url, String more) {
        return "[[bridge]]\nname = '" + name + "'\nto = ['" + url + "']\nlinks = 1\nretry_ms = 200\nretry_max_ms = 200\n" + more;
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

    private static long number(String row, String member) {
        Matcher matcher = Pattern.compile("\"" + member + "\":(\\d+)").matcher(row);
        assertTrue(matcher.find(), member);
        return Long.parseLong(matcher.group(1));
    }

    private static void awaitStuck(Broker broker, String cause, long messages) throws Exception {
        NetworkTest.eventually(messages + " messages are stuck for " + cause + ": " + row(broker), () -> {
            String row = row(broker);
            return row.contains("\"wait_cause\":\"" + cause + "\"") && number(row, "stuck_messages") == messages;
        });
        assertTrue(broker.log().contains("messages are stuck"), broker.log());
    }

    private static void awaitNone(Broker broker) throws Exception {
        NetworkTest.eventually("none is stuck: " + row(broker), () -> {
            String row = row(broker);
            return row.contains("\"wait_cause\":\"\"") && number(row, "stuck_messages") == 0;
        });
        assertTrue(broker.log().contains("messages are no longer stuck"), broker.log());
    }

    @Test
    @Tag("postroad")
    void messagesThatMayPassNoFurtherBroker() throws Exception {
        try (Broker east = Broker.launch("hops-east");
                Broker middle = Broker.launch("hops-middle", bridge("east", east.url(), ""));
                Broker west = Broker.launch("hops-west", bridge("middle", middle.url(), "static = ['queue://out']\n"));
                Connection here = connect(west.url());
                Connection between = connect(middle.url());
                Connection there = connect(east.url())) {
            Session atWest = session(here);
            NetworkTest.send(atWest, atWest.createQueue("out"), 0, MESSAGES);
            NetworkTest.eventually("they are in the middle", () ->
                    middle.command("ctl", "queues", "--filter", "out", "--json").contains("\"messages\":" + MESSAGES));
            MessageConsumer far = session(there).createConsumer(session(there).createQueue("out"));
            // The row of the link that the middle broker opens; the other one has nothing that waits.
            NetworkTest.eventually("they are stuck", () -> row(middle).lines().anyMatch(row ->
                    row.contains("\"wait_cause\":\"hop_limit\"") && number(row, "stuck_messages") == MESSAGES
                            && row.contains("\"wait_queue\":\"queue://out\"")));
            NetworkTest.expectNothing(far);
            // A message that begins here may pass.
            Session atMiddle = session(between);
            NetworkTest.send(atMiddle, atMiddle.createQueue("out"), 0, 1);
            NetworkTest.expect(far, 0, 1);
            far.close();
            NetworkTest.expect(atMiddle.createConsumer(atMiddle.createQueue("out")), 0, MESSAGES);
            NetworkTest.eventually("none is stuck", () -> row(middle).lines().noneMatch(row -> row.contains("hop_limit")));
        }
    }

    @Test
    void messagesThatHavePassedThePeerBefore() throws Exception {
        try (Classic classic = new Classic("depot");
                Broker west = Broker.launch("visited", bridge("depot", classic.url(), "duplex = true\nmessage_ttl = -1\n"));
                Connection here = connect(west.url());
                Connection there = connect(classic.url())) {
            Session atWest = session(here);
            Session atClassic = session(there);
            MessageConsumer holding = atWest.createConsumer(atWest.createQueue("out"));
            NetworkTest.send(atClassic, atClassic.createQueue("out"), 0, MESSAGES);
            NetworkTest.eventually("they have come", () ->
                    west.command("ctl", "queues", "--filter", "out", "--json").contains("\"messages\":" + MESSAGES));
            holding.close();
            MessageConsumer back = atClassic.createConsumer(atClassic.createQueue("out"));
            awaitStuck(west, "already_visited", MESSAGES);
            NetworkTest.expectNothing(back);
            back.close();
            NetworkTest.expect(atWest.createConsumer(atWest.createQueue("out")), 0, MESSAGES);
            awaitNone(west);
        }
    }

    /** A peer that refuses, or does not answer, what is sent to it, as long as it is told to. */
    private static final class Difficult extends BrokerPluginSupport {
        volatile boolean refuses;
        volatile boolean isSilent;

        @Override
        public void send(ProducerBrokerExchange exchange, Message message) throws Exception {
            if (refuses && message.getDestination().getPhysicalName().equals("out")) {
                throw new jakarta.jms.InvalidDestinationException("not now");
            }
            if (isSilent && message.getDestination().getPhysicalName().equals("out")) {
                exchange.getConnectionContext().setDontSendReponse(true);
                return;
            }
            super.send(exchange, message);
        }
    }

    @Test
    void messagesThatThePeerRefuses() throws Exception {
        Difficult plugin = new Difficult();
        plugin.refuses = true;
        try (Classic classic = new Classic("depot", plugin);
                Broker west = Broker.launch("refusal", bridge("depot", classic.url(), ""));
                Connection here = connect(west.url());
                Connection there = connect(classic.url())) {
            Session atWest = session(here);
            Session atClassic = session(there);
            MessageConsumer consumer = atClassic.createConsumer(atClassic.createQueue("out"));
            // Each further refusal in a row doubles the pause, so there are few.
            NetworkTest.send(atWest, atWest.createQueue("out"), 0, 2);
            NetworkTest.eventually("they are stuck", () -> {
                String row = row(west);
                return row.contains("\"wait_cause\":\"refused\"") && number(row, "stuck_messages") > 0 && row.contains("not now");
            });
            plugin.refuses = false;
            NetworkTest.eventually("all have come", () -> row(west).contains("\"forwarded\":2,"));
            int received = 0;
            while (consumer.receive(300) != null) {
                received++;
            }
            assertTrue(received == 2, received + " have come");
            awaitNone(west);
        }
    }

    @Test
    void messagesThatThePeerDoesNotConfirm() throws Exception {
        Difficult plugin = new Difficult();
        plugin.isSilent = true;
        try (Classic classic = new Classic("depot", plugin);
                Broker west = Broker.launch("unconfirmed", bridge("depot", classic.url(), ""));
                Connection here = connect(west.url());
                Connection there = connect(classic.url())) {
            Session atWest = session(here);
            Session atClassic = session(there);
            atClassic.createConsumer(atClassic.createQueue("out"));
            NetworkTest.send(atWest, atWest.createQueue("out"), 0, MESSAGES);
            awaitStuck(west, "unconfirmed", MESSAGES);
        }
    }

    @Test
    @Tag("postroad")
    void messagesThatAFullPeerDoesNotConfirm() throws Exception {
        String full = "[[policy]]\ndestination = 'queue://out'\nmessages_max = 4\n";
        try (Broker east = Broker.launch("full-east", full);
                Broker west = Broker.launch("full-west", bridge("east", east.url(), "static = ['queue://out']\n"));
                Connection here = connect(west.url());
                Connection there = connect(east.url())) {
            Session atWest = session(here);
            Session atEast = session(there);
            // The queue is there, so that its limit holds from the first message on.
            atEast.createConsumer(atEast.createQueue("out")).close();
            NetworkTest.send(atWest, atWest.createQueue("out"), 0, MESSAGES);
            awaitStuck(west, "unconfirmed", MESSAGES - 4);
            NetworkTest.expect(atEast.createConsumer(atEast.createQueue("out")), 0, MESSAGES);
            awaitNone(west);
        }
    }
}

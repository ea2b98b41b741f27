package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.URI;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

import jakarta.jms.Connection;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;

import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.broker.BrokerPluginSupport;
import org.apache.activemq.broker.ProducerBrokerExchange;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.command.BrokerId;
import org.apache.activemq.command.BrokerInfo;
import org.apache.activemq.command.ConnectionError;
import org.apache.activemq.command.Message;
import org.apache.activemq.transport.DefaultTransportListener;
import org.apache.activemq.transport.Transport;
import org.apache.activemq.transport.TransportFactory;
import org.junit.jupiter.api.Test;

/** Operators see how each link is: by the command line, by metrics and by advisories. */
class VisibleLinksTest {
    private static String bridge(String url) {
        return "[[bridge]]\nname = 'east'\nto = ['" + url + "']\nduplex = true\nlinks = 1\n";
    }

    private static Connection connect(String url) throws Exception {
        Connection connection = new ActiveMQConnectionFactory(url).createConnection();
        connection.start();
        return connection;
    }

    /** A number in the row of a link; the rows are JSON objects, one in a line. */
    private static long number(Broker broker, String link, String member) throws Exception {
        Matcher matcher = Pattern.compile("\"" + member + "\":(\\d+)").matcher(row(broker, link));
        assertTrue(matcher.find(), member);
        return Long.parseLong(matcher.group(1));
    }

    private static String row(Broker broker, String link) throws Exception {
        String rows = broker.command("ctl", "bridges", "--json");
        return rows.lines().filter(row -> row.contains("\"name\":\"" + link + "\"")).findFirst().orElse("");
    }

    private static void awaitState(Broker broker, String link, String state, String more) throws Exception {
        NetworkTest.eventually(link + " is " + state + " with " + more, () -> {
            String row = row(broker, link);
            return row.contains("\"state\":\"" + state + "\"") && row.contains(more);
        });
    }

    @Test
    void theStatesAndCountsOfALinkAreListed() throws Exception {
        Classic classic = new Classic("depot");
        try (Broker postroad = Broker.launch("visible", bridge(classic.url()));
                Connection here = connect(postroad.url());
                Connection there = connect(classic.url())) {
            Session atPostroad = here.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Session atClassic = there.createSession(false, Session.AUTO_ACKNOWLEDGE);
            awaitState(postroad, "east", "linked", "\"peer\":\"depot\"");
            assertTrue(postroad.command("ctl", "bridges").contains("FORWARDED"), "a table");
            MessageConsumer consumer = atClassic.createConsumer(atClassic.createQueue("out"));
            NetworkTest.send(atPostroad, atPostroad.createQueue("out"), 0, 10);
            NetworkTest.expect(consumer, 0, 10);
            NetworkTest.eventually("ten were confirmed", () -> number(postroad, "east", "forwarded") == 10);
            assertEquals(1, number(postroad, "east", "demand"));
            there.close();
            classic.close();
            awaitState(postroad, "east", "waiting", "\"forwarded\":10");
            awaitState(postroad, "east", "waiting", "cannot connect");
            assertTrue(number(postroad, "east", "retry_seconds") >= 1);
        }
    }

    @Test
    void anAcceptedLinkIsListedAtBothEnds() throws Exception {
        try (Broker east = Broker.launch("east"); Broker west = Broker.launch("west", bridge(east.url()))) {
            awaitState(west, "east", "linked", "\"direction\":\"opened\"");
            awaitState(east, "east", "linked", "\"direction\":\"accepted\"");
            west.stop();
            awaitState(east, "east", "ended", "the peer has closed the connection");
            west.start();
            awaitState(east, "east", "linked", "\"reconnects\":1");
        }
    }

    @Test
    void linksFollowTheConfigurationWithoutARestart() throws Exception {
        try (Broker east = Broker.launch("east");
                Broker south = Broker.launch("south");
                Broker west = Broker.launch("west", bridge(east.url()));
                Connection here = connect(west.url());
                Connection there = connect(south.url())) {
            awaitState(west, "east", "linked", "\"direction\":\"opened\"");
            String both = bridge(east.url()) + bridge(south.url()).replace("east", "south");
            west.configure(both);
            west.reload();
            awaitState(west, "south", "linked", "\"direction\":\"opened\"");
            assertEquals(0, number(west, "east", "reconnects"), "a link that stays is not touched");
            Session atWest = here.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Session atSouth = there.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageConsumer consumer = atSouth.createConsumer(atSouth.createQueue("out"));
            NetworkTest.send(atWest, atWest.createQueue("out"), 0, 10);
            NetworkTest.expect(consumer, 0, 10);
            // A changed link is opened again, with its new options.
            west.configure(both + "exclude = ['queue://out']\n");
            west.reload();
            NetworkTest.eventually("it was opened again", () -> row(south, "south").contains("\"reconnects\":1"));
            awaitState(west, "south", "linked", "\"direction\":\"opened\"");
            NetworkTest.send(atWest, atWest.createQueue("out"), 10, 20);
            NetworkTest.expectNothing(consumer);
            // An error changes nothing; a link that is gone from the file ends.
            west.configure("[[bridge]]\nname = 'x'\n");
            west.reload();
            NetworkTest.eventually("it is refused", () -> west.log().contains("to names no broker"));
            assertTrue(row(west, "south").contains("\"state\":\"linked\""));
            west.configure(bridge(south.url()).replace("east", "south"));
            west.reload();
            NetworkTest.eventually("it is gone", () -> row(west, "east").isEmpty());
            awaitState(east, "east", "ended", "the peer has closed the connection");
            NetworkTest.expect(consumer, 10, 20);
        }
    }

    @Test
    void aPeerThatSaysNothingIsShownAsSuch() throws Exception {
        try (ServerSocket silent = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                Broker postroad = Broker.launch("silent", bridge("tcp://127.0.0.1:" + silent.getLocalPort()))) {
            awaitState(postroad, "east", "introducing", "\"address\":\"127.0.0.1:" + silent.getLocalPort());
        }
    }

    private static BrokerInfo introduction(String id) {
        BrokerInfo info = new BrokerInfo();
        info.setBrokerId(new BrokerId(id));
        info.setBrokerName("intruder");
        info.setNetworkConnection(true);
        return info;
    }

    /** What Postroad says to these introductions on one connection, once it has ended it. */
    private static String answerTo(Broker postroad, BrokerInfo... introductions) throws Exception {
        List<Object> answers = new CopyOnWriteArrayList<>();
        CountDownLatch ended = new CountDownLatch(1);
        Transport transport = TransportFactory.connect(new URI(postroad.url()));
        transport.setTransportListener(new DefaultTransportListener() {
            @Override
            public void onCommand(Object command) {
                answers.add(command);
            }

            @Override
            public void onException(IOException error) {
                ended.countDown();
            }
        });
        transport.start();
        for (BrokerInfo introduction : introductions) {
            transport.oneway(introduction);
        }
        assertTrue(ended.await(NetworkTest.PATIENCE_MS, TimeUnit.MILLISECONDS), "the connection ends");
        transport.stop();
        return answers.stream().filter(ConnectionError.class::isInstance)
                .map(answer -> ((ConnectionError) answer).getException().getMessage()).collect(Collectors.joining());
    }

    @Test
    void aPeerThatPresentsItselfTwiceOrWronglyIsToldWhyAndLeavesNothing() throws Exception {
        try (Broker postroad = Broker.launch("intruded")) {
            String twice = answerTo(postroad, introduction("ID:intruder"), introduction("ID:intruder"));
            assertTrue(twice.contains("a second BrokerInfo on one connection"), twice);
            NetworkTest.eventually("a log line", () -> postroad.log().contains("a second BrokerInfo on one connection"));
            BrokerInfo slave = introduction("ID:slave");
            slave.setSlaveBroker(true);
            String refused = answerTo(postroad, slave);
            assertTrue(refused.contains("slave broker"), refused);
            NetworkTest.eventually("no link is left", () -> !postroad.command("ctl", "bridges", "--json").contains("\"state\":\"linked\""));
            try (Connection client = connect(postroad.url())) {
                Session session = client.createSession(false, Session.AUTO_ACKNOWLEDGE);
                NetworkTest.send(session, session.createQueue("after"), 0, 1);
                NetworkTest.expect(session.createConsumer(session.createQueue("after")), 0, 1);
            }
        }
    }

    @Test
    void advisoriesTellOfLinks() throws Exception {
        try (Classic classic = new Classic("depot");
                Broker postroad = Broker.launch("advised", bridge(classic.url()));
                Connection here = connect(postroad.url())) {
            awaitState(postroad, "east", "linked", "depot");
            Session session = here.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(session.createTopic("ActiveMQ.Advisory.NetworkBridge"));
            ActiveMQMessage begun = (ActiveMQMessage) consumer.receive(NetworkTest.PATIENCE_MS);
            assertNotNull(begun, "one that is there is told to those who come later");
            assertTrue(begun.getBooleanProperty("started"));
            assertFalse(begun.getBooleanProperty("createdByDuplex"));
            assertTrue(begun.getStringProperty("remoteIp").contains("127.0.0.1"));
            assertEquals("depot", ((BrokerInfo) begun.getDataStructure()).getBrokerName());
            classic.close();
            ActiveMQMessage ended = (ActiveMQMessage) consumer.receive(NetworkTest.PATIENCE_MS);
            assertNotNull(ended, "its end is told");
            assertFalse(ended.getBooleanProperty("started"));
        }
    }

    /** A peer that refuses what is sent to one queue. */
    private static final class Refusing extends BrokerPluginSupport {
        @Override
        public void send(ProducerBrokerExchange exchange, Message message) throws Exception {
            if (message.getDestination().getPhysicalName().equals("refused")) {
                throw new jakarta.jms.InvalidDestinationException("nothing goes to that");
            }
            super.send(exchange, message);
        }
    }

    @Test
    void aRefusedMessageIsTriedAgainAndTheLinkStays() throws Exception {
        try (Classic classic = new Classic("depot", new Refusing());
                Broker postroad = Broker.launch("refused", bridge(classic.url()));
                Connection here = connect(postroad.url());
                Connection there = connect(classic.url())) {
            Session atPostroad = here.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Session atClassic = there.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageConsumer refused = atClassic.createConsumer(atClassic.createQueue("refused"));
            MessageConsumer other = atClassic.createConsumer(atClassic.createQueue("other"));
            NetworkTest.send(atPostroad, atPostroad.createQueue("refused"), 0, 1);
            NetworkTest.eventually("it is tried again", () -> number(postroad, "east", "refused") >= 2);
            NetworkTest.send(atPostroad, atPostroad.createQueue("other"), 0, 10);
            NetworkTest.expect(other, 0, 10);
            NetworkTest.expectNothing(refused);
            assertEquals(0, number(postroad, "east", "reconnects"));
            assertTrue(row(postroad, "east").contains("nothing goes to that"), "the reason is shown");
        }
    }
}

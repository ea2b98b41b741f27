package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TextMessage;

import org.apache.activemq.ActiveMQConnectionFactory;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** A bridge of several connections: each destination has one of them, so that nothing is multiplied and order is kept. */
class ParallelLinksTest {
    private static final int QUEUES = 12;
    private static final int MESSAGES = 20;

    private static String bridge(String url, int links) {
        return "[[bridge]]\nname = 'east'\nto = ['" + url + "']\nduplex = true\nlinks = " + links
                + "\nretry_ms = 20\nretry_max_ms = 50\n";
    }

    private static Connection connect(String url) throws Exception {
        Connection connection = new ActiveMQConnectionFactory(url).createConnection();
        connection.start();
        return connection;
    }

    private static Session session(Connection connection) throws Exception {
        return connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    /** The rows of the connections, JSON objects. */
    private static List<String> rows(Broker broker, String state) throws Exception {
        return broker.command("ctl", "bridges", "--json").lines().filter(row -> row.contains("\"state\":\"" + state + "\"")).toList();
    }

    private static long number(String row, String member) {
        Matcher matcher = Pattern.compile("\"" + member + "\":(\\d+)").matcher(row);
        assertTrue(matcher.find(), member + " in " + row);
        return Long.parseLong(matcher.group(1));
    }

    private static void awaitLinks(Broker broker, int links) throws Exception {
        NetworkTest.eventually(links + " connections", () -> rows(broker, "linked").size() == links);
    }

    private static List<MessageConsumer> consumers(Session session, String prefix) throws Exception {
        List<MessageConsumer> consumers = new ArrayList<>();
        for (int queue = 0; queue < QUEUES; queue++) {
            consumers.add(session.createConsumer(session.createQueue(prefix + queue)));
        }
        return consumers;
    }

    /** Messages for every queue in turn, and each arrives once and in order. */
    private static void flow(Session from, List<MessageConsumer> to, String prefix) throws Exception {
        MessageProducer producer = from.createProducer(null);
        for (int number = 0; number < MESSAGES; number++) {
            for (int queue = 0; queue < QUEUES; queue++) {
                TextMessage message = from.createTextMessage("message " + number);
                message.setIntProperty("number", number);
                producer.send(from.createQueue(prefix + queue), message);
            }
        }
        for (MessageConsumer consumer : to) {
            NetworkTest.expect(consumer, 0, MESSAGES);
        }
    }

    @Test
    @Tag("postroad")
    void destinationsAreSharedAmongTheConnectionsBothWays() throws Exception {
        try (Broker east = Broker.launch("parallel-east");
                Broker west = Broker.launch("parallel-west", bridge(east.url(), 3));
                Connection here = connect(west.url());
                Connection there = connect(east.url())) {
            awaitLinks(west, 3);
            awaitLinks(east, 3);
            Session atWest = session(here);
            Session atEast = session(there);
            List<MessageConsumer> out = consumers(atEast, "out.");
            List<MessageConsumer> in = consumers(atWest, "in.");
            MessageConsumer news = atEast.createConsumer(atEast.createTopic("news"));
            flow(atWest, out, "out.");
            flow(atEast, in, "in.");
            NetworkTest.eventually("the topic has one subscription of the link",
                    () -> west.command("ctl", "consumers", "--json").lines().filter(row -> row.contains("topic://news")).count() == 1);
            NetworkTest.send(atWest, atWest.createTopic("news"), 0, 10);
            NetworkTest.expect(news, 0, 10);
            NetworkTest.expectNothing(news);
            List<String> consumers = west.command("ctl", "consumers", "--json").lines().toList();
            for (int queue = 0; queue < QUEUES; queue++) {
                String name = "\"queue://out." + queue + "\"";
                assertEquals(1, consumers.stream().filter(row -> row.contains(name)).count(), "demand is not multiplied: " + name);
            }
            List<String> rows = rows(west, "linked");
            assertEquals(QUEUES * MESSAGES + 10, rows.stream().mapToLong(row -> number(row, "dispatched")).sum(), "nor is traffic");
            for (String row : rows) {
                assertTrue(number(row, "dispatched") > 0 && number(row, "received") > 0, "each takes part: " + row);
            }
            assertEquals(List.of(0L, 1L, 2L), rows.stream().map(row -> number(row, "number")).sorted().toList());
        }
    }

    @Test
    @Tag("postroad")
    void aRequestIsAnsweredOverWhicheverConnection() throws Exception {
        try (Broker east = Broker.launch("request-east");
                Broker west = Broker.launch("request-west", bridge(east.url(), 4));
                Connection here = connect(west.url());
                Connection there = connect(east.url())) {
            awaitLinks(west, 4);
            Session atWest = session(here);
            Session atEast = session(there);
            for (int round = 0; round < 4; round++) {
                MessageConsumer service = atEast.createConsumer(atEast.createQueue("service." + round));
                TemporaryQueue replies = atWest.createTemporaryQueue();
                MessageConsumer replied = atWest.createConsumer(replies);
                TextMessage request = atWest.createTextMessage("question");
                request.setJMSReplyTo(replies);
                atWest.createProducer(atWest.createQueue("service." + round)).send(request);
                Message asked = service.receive(NetworkTest.PATIENCE_MS);
                assertNotNull(asked, "request " + round);
                atEast.createProducer(asked.getJMSReplyTo()).send(atEast.createTextMessage("answer"));
                assertNotNull(replied.receive(NetworkTest.PATIENCE_MS), "reply " + round);
            }
        }
    }

    @Test
    @Tag("postroad")
    void cutConnectionsLoseAndDoubleNothing() throws Exception {
        try (Broker east = Broker.launch("parallel-cut-east");
                Wire wire = new Wire(URI.create(east.url()).getPort());
                Broker west = Broker.launch("parallel-cut-west", bridge("tcp://127.0.0.1:" + wire.port(), 4));
                Connection here = connect(west.url());
                Connection there = connect(east.url())) {
            awaitLinks(west, 4);
            Session atWest = session(here);
            Session atEast = session(there);
            List<MessageConsumer> consumers = consumers(atEast, "cut.");
            wire.cutAfter(new Random(11), 20_000);
            MessageProducer producer = atWest.createProducer(null);
            for (int number = 0; number < 3 * MESSAGES; number++) {
                for (int queue = 0; queue < QUEUES; queue++) {
                    TextMessage message = atWest.createTextMessage("x".repeat(200));
                    message.setIntProperty("number", number);
                    producer.send(atWest.createQueue("cut." + queue), message);
                }
            }
            NetworkTest.eventually("connections were cut", () -> wire.cuts() >= 8);
            wire.cutNoMore();
            for (int queue = 0; queue < QUEUES; queue++) {
                int[] times = new int[3 * MESSAGES];
                for (int received = 0; received < times.length; received++) {
                    Message message = consumers.get(queue).receive(NetworkTest.PATIENCE_MS);
                    assertNotNull(message, received + " messages of queue " + queue + " have come");
                    times[message.getIntProperty("number")]++;
                }
                for (int number = 0; number < times.length; number++) {
                    assertEquals(1, times[number], "queue " + queue + " message " + number);
                }
                NetworkTest.expectNothing(consumers.get(queue));
            }
        }
    }

    @Test
    @Tag("postroad")
    void theNumberFollowsTheConfiguration() throws Exception {
        try (Broker east = Broker.launch("number-east"); Broker west = Broker.launch("number-west", bridge(east.url(), 1))) {
            awaitLinks(west, 1);
            west.configure(bridge(east.url(), 5));
            west.reload();
            awaitLinks(west, 5);
            west.configure(bridge(east.url(), 2));
            west.reload();
            awaitLinks(west, 2);
            awaitLinks(east, 2);
            assertTrue(west.command("ctl", "bridges").contains("LINK"), "the table tells them apart");
        }
    }

    @Test
    void classicForwardsOverOneOfThem() throws Exception {
        try (Classic classic = new Classic("depot");
                Broker west = Broker.launch("parallel-classic", bridge(classic.url(), 3));
                Connection here = connect(west.url());
                Connection there = connect(classic.url())) {
            awaitLinks(west, 3);
            Session atWest = session(here);
            Session atClassic = session(there);
            List<MessageConsumer> out = consumers(atClassic, "out.");
            List<MessageConsumer> in = consumers(atWest, "in.");
            MessageConsumer news = atWest.createConsumer(atWest.createTopic("news"));
            flow(atWest, out, "out.");
            flow(atClassic, in, "in.");
            NetworkTest.eventually("Classic knows the subscriber", () -> classic.consumers(atWest.createTopic("news")) == 1);
            NetworkTest.send(atClassic, atClassic.createTopic("news"), 0, 10);
            NetworkTest.expect(news, 0, 10);
            NetworkTest.expectNothing(news);
            assertEquals(QUEUES * MESSAGES, rows(west, "linked").stream().mapToLong(row -> number(row, "dispatched")).sum());
        }
    }
}

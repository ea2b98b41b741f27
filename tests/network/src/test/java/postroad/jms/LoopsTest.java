package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.Topic;

import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;

/**
 * Three Postroads of the same name in a ring, and as a chain a, b, c for other destinations: messages come once, however they could
 * go, and no further than hop limits allow.
 */
@Tag("postroad")
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class LoopsTest {
    private static final String NAMED = "broker_name = 'depot'\n";
    private static final int BROKERS = 3;
    private static final Pattern DISPATCHED = Pattern.compile("\"dispatched\":(\\d+)");

    private final List<Broker> brokers = new ArrayList<>();
    private final List<Connection> connections = new ArrayList<>();
    private final List<Session> sessions = new ArrayList<>();

    private static String bridge(String name, String url, String more) {
        return "[[bridge]]\nname = '" + name + "'\nto = ['" + url + "']\nduplex = true\nlinks = 1\nretry_ms = 50\nretry_max_ms = 200\n" + more;
    }

    private static String ring(String url) {
        return bridge("ring", url, "include = ['queue://ring.>', 'topic://ring.>']\nmessage_ttl = -1\nconsumer_ttl = -1\n");
    }

    private static String chain(String url) {
        return bridge("near", url, "include = ['queue://near.>']\n")
                + bridge("two", url, "include = ['queue://two.>']\nmessage_ttl = 2\nconsumer_ttl = 2\n")
                + bridge("known", url, "include = ['queue://known.>']\nconsumer_ttl = 2\n");
    }

    @BeforeAll
    void start() throws Exception {
        Broker a = Broker.launch("loops-a", NAMED);
        brokers.add(a);
        Broker b = Broker.launch("loops-b", NAMED + ring(a.url()) + chain(a.url()));
        brokers.add(b);
        Broker c = Broker.launch("loops-c", NAMED + ring(b.url()) + chain(b.url()));
        brokers.add(c);
        a.configure(NAMED + ring(c.url()));
        a.reload();
        int[] links = {4 + 1, 4 + 4, 4 + 1};
        for (int at = 0; at < BROKERS; at++) {
            Broker broker = brokers.get(at);
            int want = links[at];
            NetworkTest.eventually("broker " + at + " has its links", () ->
                    broker.command("ctl", "bridges", "--json").lines().filter(row -> row.contains("\"state\":\"linked\"")).count() == want);
            Connection connection = FeaturesOverLink.connect(broker.url());
            connections.add(connection);
            sessions.add(FeaturesOverLink.session(connection));
        }
    }

    @AfterAll
    void stop() throws Exception {
        for (Connection connection : connections) {
            connection.close();
        }
        for (Broker broker : brokers) {
            broker.close();
        }
    }

    private long dispatched() throws Exception {
        long dispatched = 0;
        for (Broker broker : brokers) {
            Matcher matcher = DISPATCHED.matcher(broker.command("ctl", "bridges", "--json"));
            while (matcher.find()) {
                dispatched += Long.parseLong(matcher.group(1));
            }
        }
        return dispatched;
    }

    private void awaitDemand(int at, String destination) throws Exception {
        NetworkTest.eventually("demand for " + destination + " at " + at, () -> FeaturesOverLink.hasDemand(brokers.get(at), destination));
    }

    @Test
    void aQueueInARingIsConsumedOnceWhereverItsConsumerIs() throws Exception {
        Queue queue = sessions.get(0).createQueue("ring.work");
        for (int at = 0; at < BROKERS; at++) {
            MessageConsumer consumer = sessions.get(at).createConsumer(queue);
            for (int from = 0; from < BROKERS; from++) {
                NetworkTest.send(sessions.get(from), queue, 10 * from, 10 * from + 10);
            }
            int[] times = new int[10 * BROKERS];
            for (int received = 0; received < times.length; received++) {
                Message message = consumer.receive(NetworkTest.PATIENCE_MS);
                assertNotNull(message, received + " have come to " + at);
                times[message.getIntProperty("number")]++;
            }
            NetworkTest.expectNothing(consumer);
            for (int number = 0; number < times.length; number++) {
                assertEquals(1, times[number], "message " + number + " at " + at);
            }
            consumer.close();
        }
    }

    @Test
    void aTopicInARingReachesEachSubscriberOnceAndComesToRest() throws Exception {
        Topic topic = sessions.get(0).createTopic("ring.news");
        List<MessageConsumer> subscribers = new ArrayList<>();
        for (Session session : sessions) {
            subscribers.add(session.createConsumer(topic));
        }
        for (int at = 0; at < BROKERS; at++) {
            awaitDemand(at, "topic://ring.news");
        }
        long before = dispatched();
        for (int at = 0; at < BROKERS; at++) {
            NetworkTest.send(sessions.get(at), topic, 10 * at, 10 * at + 10);
        }
        for (int at = 0; at < BROKERS; at++) {
            int[] times = new int[10 * BROKERS];
            for (int received = 0; received < times.length; received++) {
                Message message = subscribers.get(at).receive(NetworkTest.PATIENCE_MS);
                assertNotNull(message, received + " have come to " + at);
                times[message.getIntProperty("number")]++;
            }
            NetworkTest.expectNothing(subscribers.get(at));
            for (int number = 0; number < times.length; number++) {
                assertEquals(1, times[number], "message " + number + " at " + at);
            }
        }
        long after = dispatched();
        assertTrue(after - before >= 2 * 10 * BROKERS, "each crosses to two brokers");
        Thread.sleep(300);
        assertEquals(after, dispatched(), "nothing goes round");
        for (MessageConsumer subscriber : subscribers) {
            subscriber.close();
        }
    }

    /** Messages of AMQP clients have no OpenWire id: the first broker gives them one, the same by each way. */
    @Test
    void messagesOfAmqpClientsInARingComeOnce() throws Exception {
        Topic topic = sessions.get(0).createTopic("ring.amqp.news");
        Queue queue = sessions.get(0).createQueue("ring.amqp.work");
        List<MessageConsumer> subscribers = new ArrayList<>();
        for (Session session : sessions) {
            subscribers.add(session.createConsumer(topic));
        }
        MessageConsumer worker = sessions.get(2).createConsumer(queue);
        for (int at = 0; at < BROKERS; at++) {
            awaitDemand(at, "topic://ring.amqp.news");
        }
        for (int at = 0; at < BROKERS; at++) {
            try (Connection amqp = new JmsConnectionFactory(brokers.get(at).amqpUrl()).createConnection()) {
                Session session = amqp.createSession(false, Session.AUTO_ACKNOWLEDGE);
                NetworkTest.send(session, session.createTopic("ring.amqp.news"), 10 * at, 10 * at + 10);
                NetworkTest.send(session, session.createQueue("ring.amqp.work"), 10 * at, 10 * at + 10);
            }
        }
        subscribers.add(worker);
        for (MessageConsumer consumer : subscribers) {
            int[] times = new int[10 * BROKERS];
            for (int received = 0; received < times.length; received++) {
                Message message = consumer.receive(NetworkTest.PATIENCE_MS);
                assertNotNull(message, received + " have come");
                times[message.getIntProperty("number")]++;
            }
            NetworkTest.expectNothing(consumer);
            for (int number = 0; number < times.length; number++) {
                assertEquals(1, times[number], "message " + number);
            }
            consumer.close();
        }
    }

    /** Subscriptions of links to brokers of one name are told apart. */
    @Test
    void durableSubscribersOfTwoBrokersOfOneNameBothGetAll() throws Exception {
        Topic topic = sessions.get(1).createTopic("ring.kept");
        List<Connection> readers = new ArrayList<>();
        try {
            List<MessageConsumer> subscribers = new ArrayList<>();
            for (int at : new int[] {0, 2}) {
                Connection reader = new ActiveMQConnectionFactory(brokers.get(at).url()).createConnection();
                readers.add(reader);
                reader.setClientID("reader " + at);
                reader.start();
                subscribers.add(FeaturesOverLink.session(reader).createDurableSubscriber(topic, "kept"));
            }
            NetworkTest.eventually("demand from both", () -> brokers.get(1).command("ctl", "consumers", "--json").lines()
                    .filter(row -> row.contains("topic://ring.kept")).count() >= 2);
            NetworkTest.send(sessions.get(1), topic, 0, 10);
            for (MessageConsumer subscriber : subscribers) {
                NetworkTest.expect(subscriber, 0, 10);
                NetworkTest.expectNothing(subscriber);
            }
        } finally {
            for (Connection reader : readers) {
                reader.close();
            }
        }
    }

    @Test
    void messagesPassNoMoreBrokersThanTheLimitAllows() throws Exception {
        MessageConsumer near = sessions.get(2).createConsumer(sessions.get(2).createQueue("near.work"));
        MessageConsumer known = sessions.get(2).createConsumer(sessions.get(2).createQueue("known.work"));
        MessageConsumer two = sessions.get(2).createConsumer(sessions.get(2).createQueue("two.work"));
        awaitDemand(1, "queue://near.work");
        awaitDemand(0, "queue://two.work");
        for (String name : new String[] {"near.work", "known.work", "two.work"}) {
            NetworkTest.send(sessions.get(0), sessions.get(0).createQueue(name), 0, 5);
        }
        Message last = NetworkTest.expect(two, 0, 5);
        assertEquals(2, last.getStringProperty("JMSActiveMQBrokerPath").split(",").length, "it has passed two brokers");
        NetworkTest.expectNothing(near);
        NetworkTest.expectNothing(known);
        NetworkTest.send(sessions.get(1), sessions.get(1).createQueue("near.work"), 5, 10);
        NetworkTest.expect(near, 5, 10);
        MessageConsumer local = sessions.get(0).createConsumer(sessions.get(0).createQueue("near.work"));
        NetworkTest.expect(local, 0, 5);
        for (MessageConsumer consumer : new MessageConsumer[] {near, known, two, local}) {
            consumer.close();
        }
    }

    @Test
    void brokersOfOneNameAreToldApart() throws Exception {
        String rows = brokers.get(1).command("ctl", "bridges", "--json");
        assertEquals(8, rows.split("\"peer\":\"depot\"", -1).length - 1, rows);
        assertEquals(2, rows.lines().map(row -> row.replaceAll(".*\"peer_id\":\"([^\"]*)\".*", "$1")).distinct().count(), rows);
    }
}

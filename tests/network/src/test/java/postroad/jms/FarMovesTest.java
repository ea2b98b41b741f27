package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import java.util.Map;
import java.util.TreeMap;

import jakarta.jms.Connection;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Moves of a durable subscriber that are more than there and back over one link that is up. */
@Tag("postroad")
class FarMovesTest {
    private static final String TOPIC = "news";
    /** Beyond the minute in which a broker keeps the ids of a topic's messages. */
    private static final int LONG_MS = 75_000;

    private static String link(String name, String url) {
        return "[[bridge]]\nname = '" + name + "'\nto = ['" + url + "']\nduplex = true\nretry_ms = 50\nretry_max_ms = 50\n";
    }

    private static void send(Broker broker, int from, int to) throws Exception {
        try (Connection connection = FeaturesOverLink.connect(broker.url())) {
            Session session = FeaturesOverLink.session(connection);
            NetworkTest.send(session, session.createTopic(TOPIC), from, to);
        }
    }

    /** Takes these, in any order, and nothing else. */
    private static void expectEach(String what, MessageConsumer consumer, int from, int to) throws Exception {
        Map<Integer, Integer> times = new TreeMap<>();
        for (int number = from; number < to; number++) {
            TextMessage message = (TextMessage) consumer.receive(NetworkTest.PATIENCE_MS);
            assertNotNull(message, what + ": " + (number - from) + " of " + (to - from) + " have come: " + times);
            times.merge(message.getIntProperty("number"), 1, Integer::sum);
        }
        for (TextMessage more; (more = (TextMessage) consumer.receive(1000)) != null;) {
            times.merge(more.getIntProperty("number"), 1, Integer::sum);
        }
        Map<Integer, Integer> want = new TreeMap<>();
        for (int number = from; number < to; number++) {
            want.put(number, 1);
        }
        assertEquals(want, times, what);
    }

    /** As the one before; a failure says which broker has the rest. */
    private static void expectEach(String what, Broker[] mesh, MessageConsumer consumer, int from, int to) throws Exception {
        try {
            expectEach(what, consumer, from, to);
        } catch (AssertionError missing) {
            StringBuilder all = new StringBuilder(missing.getMessage());
            for (Broker broker : mesh) {
                all.append("\n").append(broker.url()).append("\n").append(broker.command("ctl", "queues"));
                all.append(broker.command("ctl", "subscriptions")).append(broker.command("ctl", "bridges"));
            }
            throw new AssertionError(all.toString(), missing);
        }
    }

    private static void awaitLinks(Broker broker, int links) throws Exception {
        NetworkTest.eventually("links", () -> broker.command("ctl", "bridges", "--json").lines()
                .filter(row -> row.contains("\"linked\"")).count() == links);
    }

    private static void roundAMesh(String more) throws Exception {
        try (Broker a = Broker.launch("round-a", "broker_name = 'a'\n");
                Broker b = Broker.launch("round-b", "broker_name = 'b'\n" + link("to-a", a.url()) + more);
                Broker c = Broker.launch("round-c", "broker_name = 'c'\n" + link("to-a", a.url()) + more + link("to-b", b.url()) + more)) {
            awaitLinks(a, 2);
            awaitLinks(b, 2);
            awaitLinks(c, 2);
            Broker[] mesh = {a, b, c};
            try (Subscriber moving = new Subscriber(a.url(), TOPIC)) {
                Subscriber.awaitBridged(TOPIC, true, () -> Subscriber.isBridged(b, TOPIC));
                Subscriber.awaitBridged(TOPIC, true, () -> Subscriber.isBridged(c, TOPIC));
                int next = 0;
                for (int step = 1; step <= 7; step++) {
                    int from = next;
                    // Some while it reads, which it leaves, and some while it is away.
                    moving.leave();
                    for (Broker broker : mesh) {
                        send(broker, next, next + 5);
                        next += 5;
                    }
                    moving.attach(mesh[step % 3].url());
                    for (Broker broker : mesh) {
                        send(broker, next, next + 5);
                        next += 5;
                    }
                    expectEach("step " + step, mesh, moving.consumer, from, next);
                }
            }
        }
    }

    @Test
    void itGoesRoundAMesh() throws Exception {
        roundAMesh("");
    }

    @Test
    void itGoesRoundAMeshWithoutALimitOfHops() throws Exception {
        roundAMesh("message_ttl = -1\nconsumer_ttl = -1\n");
    }

    @Test
    void theLinkIsDownForLongBesideAnotherSubscriberOfTheTopic() throws Exception {
        try (Broker east = Broker.launch("long-east", "broker_name = 'east'\n");
                Wire wire = new Wire(Integer.parseInt(east.url().replaceFirst(".*:", "")));
                Broker west = Broker.launch("long-west", "broker_name = 'west'\n" + link("east", "tcp://127.0.0.1:" + wire.port()));
                Subscriber moving = new Subscriber(west.url(), TOPIC)) {
            try (Subscriber beside = new Subscriber(east.url(), TOPIC, "beside")) {
                Subscriber.awaitBridged(TOPIC, true, () -> Subscriber.isBridged(west, TOPIC));
                moving.leave();
                wire.refuse(true);
                send(west, 0, 10);
                moving.attach(east.url());
                send(east, 10, 15);
                expectEach("while the link is down", moving.consumer, 10, 15);
                Thread.sleep(LONG_MS);
                wire.refuse(false);
                expectEach("once the link is back", moving.consumer, 0, 10);
                expectEach("another subscriber", beside.consumer, 0, 15);
                send(west, 15, 20);
                expectEach("by the topic", moving.consumer, 15, 20);
            }
        }
    }
}

package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.Session;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** A durable subscription of a link ends with the last subscription at the other Postroad that it stands for. */
@Tag("postroad")
class EndedSubscriptionsTest {
    private static String bridge(String url) {
        return "broker_name = 'west'\n[[bridge]]\nname = 'east'\nto = ['" + url + "']\nduplex = true\nretry_ms = 50\nretry_max_ms = 50\n";
    }

    private static void awaitBridged(Broker at, String topic, boolean wanted) throws Exception {
        Subscriber.awaitBridged(topic, wanted, () -> Subscriber.isBridged(at, topic));
    }

    private static void send(Broker broker, String topic, int from, int to) throws Exception {
        try (Connection connection = FeaturesOverLink.connect(broker.url())) {
            Session session = FeaturesOverLink.session(connection);
            NetworkTest.send(session, session.createTopic(topic), from, to);
        }
    }

    @Test
    void itEndsAtOnceWhileTheLinkIsUp() throws Exception {
        try (Broker east = Broker.launch("ended-east", "broker_name = 'east'\n");
                Broker west = Broker.launch("ended-west", bridge(east.url()));
                Subscriber first = new Subscriber(east.url(), "news");
                Subscriber second = new Subscriber(east.url(), "news.too");
                Subscriber other = new Subscriber(west.url(), "prices")) {
            for (String topic : new String[] {"news", "news.too"}) {
                awaitBridged(west, topic, true);
            }
            awaitBridged(east, "prices", true);
            first.unsubscribe();
            awaitBridged(west, "news", false);
            assertTrue(Subscriber.isBridged(west, "news.too"), "another subscription goes on");
            send(west, "news", 0, 5);
            send(west, "news.too", 0, 5);
            NetworkTest.expect(second.consumer, 0, 5);
            assertFalse(Subscriber.isBridged(west, "news"), "nothing is kept for it");
            other.unsubscribe();
            awaitBridged(east, "prices", false);
            // It begins again with the next subscriber, without what was sent meanwhile.
            first.leave();
            first.attach(east.url());
            awaitBridged(west, "news", true);
            send(west, "news", 5, 10);
            NetworkTest.expect(first.consumer, 5, 10);
            NetworkTest.expectNothing(first.consumer);
        }
    }

    @Test
    void itEndsWhenTheLinkComesBack() throws Exception {
        try (Broker east = Broker.launch("later-east", "broker_name = 'east'\n");
                Broker west = Broker.launch("later-west", bridge(east.url()));
                Subscriber ended = new Subscriber(east.url(), "news");
                Subscriber away = new Subscriber(east.url(), "kept.news");
                Subscriber other = new Subscriber(west.url(), "prices")) {
            awaitBridged(west, "news", true);
            awaitBridged(west, "kept.news", true);
            awaitBridged(east, "prices", true);
            away.leave();
            other.unsubscribe();
            awaitBridged(east, "prices", false);
            west.kill();
            ended.unsubscribe();
            west.start();
            awaitBridged(west, "news", false);
            // Its reader is away, and it wants messages nevertheless.
            assertTrue(Subscriber.isBridged(west, "kept.news"), "the subscription is there");
            send(west, "kept.news", 0, 5);
            NetworkTest.eventually("the peer has them", () -> east.command("ctl", "subscriptions", "--json").lines()
                    .anyMatch(row -> row.contains("kept.news") && row.contains("\"messages\":5")));
            away.attach(east.url());
            NetworkTest.expect(away.consumer, 0, 5);
            NetworkTest.expectNothing(away.consumer);
        }
    }

    @Test
    void itEndsForBrokersBehindThePeer() throws Exception {
        String far = "consumer_ttl = -1\nmessage_ttl = -1\n";
        try (Broker east = Broker.launch("chain-east", "broker_name = 'east'\n");
                Broker middle = Broker.launch("chain-middle", bridge(east.url()).replace("west", "middle") + far);
                Broker west = Broker.launch("chain-west", bridge(middle.url()) + far);
                Subscriber ended = new Subscriber(east.url(), "news");
                Subscriber away = new Subscriber(east.url(), "kept.news")) {
            for (String topic : new String[] {"news", "kept.news"}) {
                awaitBridged(middle, topic, true);
                awaitBridged(west, topic, true);
            }
            west.kill();
            ended.unsubscribe();
            awaitBridged(middle, "news", false);
            away.leave();
            west.start();
            awaitBridged(west, "news", false);
            assertTrue(Subscriber.isBridged(west, "kept.news"), "needed behind the peer");
            send(west, "kept.news", 0, 5);
            away.attach(east.url());
            NetworkTest.expect(away.consumer, 0, 5);
            away.unsubscribe();
            awaitBridged(middle, "kept.news", false);
            awaitBridged(west, "kept.news", false);
        }
    }
}

package postroad.jms;

import java.util.List;
import java.util.function.Consumer;

import org.apache.activemq.command.ActiveMQTopic;
import org.apache.activemq.network.NetworkConnector;
import org.junit.jupiter.api.Test;

/** Durable subscriptions of links between a Postroad and a Classic end with those that they stand for. */
class EndedByClassicTest extends NetworkTest {
    private NetworkConnector connector;

    private void awaitHere(String topic, boolean wanted) throws Exception {
        Subscriber.awaitBridged(topic, wanted, () -> Subscriber.isBridged(postroad, topic));
    }

    private void awaitThere(String topic, boolean wanted) throws Exception {
        Subscriber.awaitBridged(topic, wanted, () -> classic.hasBridgedSubscription(topic));
    }

    private void bridge(Consumer<NetworkConnector> options) throws Exception {
        connector = classic.bridgeTo(postroad.url(), options);
        eventually("the bridge is established", () -> Classic.isBridged(connector));
    }

    private void dial() throws Exception {
        postroad.configure("[[bridge]]\nname = 'depot'\nto = ['" + classic.url()
                + "']\nduplex = true\nretry_ms = 50\nretry_max_ms = 50\n");
        postroad.reload();
    }

    /** Ends a subscription on each side, as far as the link is duplex. */
    private void endsAtOnce(boolean duplex) throws Exception {
        try (Subscriber here = new Subscriber(postroad.url(), "prices"); Subscriber there = new Subscriber(classic.url(), "news")) {
            awaitThere("prices", true);
            send(atClassic, atClassic.createTopic("prices"), 0, 5);
            expect(here.consumer, 0, 5);
            here.unsubscribe();
            awaitThere("prices", false);
            if (duplex) {
                awaitHere("news", true);
                there.unsubscribe();
                awaitHere("news", false);
            }
        }
    }

    /**
     * The link goes down and comes back: a subscription whose reader is away at the Postroad still gets messages. One of Classic
     * has ended meanwhile, as far as the link is duplex.
     */
    private void endsLater(boolean duplex) throws Exception {
        try (Subscriber here = new Subscriber(postroad.url(), "prices");
                Subscriber there = new Subscriber(classic.url(), "news");
                Subscriber away = new Subscriber(classic.url(), "kept.news")) {
            awaitThere("prices", true);
            if (duplex) {
                awaitHere("news", true);
                awaitHere("kept.news", true);
            }
            away.leave();
            here.leave();
            connector.stop();
            there.unsubscribe();
            send(atClassic, atClassic.createTopic("prices"), 0, 5);
            connector.start();
            eventually("what was sent meanwhile has come", () -> postroad.command("ctl", "subscriptions", "--json").lines()
                    .anyMatch(row -> row.contains("\"prices\"") && row.contains("\"messages\":5")));
            here.attach(postroad.url());
            expect(here.consumer, 0, 5);
            here.unsubscribe();
            awaitThere("prices", false);
            if (duplex) {
                awaitHere("news", false);
                awaitHere("kept.news", true);
            }
        }
    }

    /**
     * The link goes down and comes back: subscriptions of the Postroad have ended and begun meanwhile. Classic compares those of
     * topics that it knew when it started the connector.
     */
    private void changesHere(boolean duplex) throws Exception {
        bridge(options -> syncs(options, duplex));
        try (Subscriber ends = new Subscriber(postroad.url(), "prices");
                Subscriber stays = new Subscriber(postroad.url(), "kept.prices")) {
            awaitThere("prices", true);
            awaitThere("kept.prices", true);
            stays.leave();
            connector.stop();
            ends.unsubscribe();
            try (Subscriber begins = new Subscriber(postroad.url(), "new.prices")) {
                begins.leave();
                classic.restart(connector);
                awaitThere("new.prices", true);
                awaitThere("prices", false);
                awaitThere("kept.prices", true);
                send(atClassic, atClassic.createTopic("new.prices"), 0, 5);
                send(atClassic, atClassic.createTopic("kept.prices"), 0, 5);
                begins.attach(postroad.url());
                expect(begins.consumer, 0, 5);
                stays.attach(postroad.url());
                expect(stays.consumer, 0, 5);
            }
        }
    }

    private static void syncs(NetworkConnector options, boolean duplex) {
        options.setDuplex(duplex);
        options.setSyncDurableSubs(true);
        options.setDynamicallyIncludedDestinations(List.of(new ActiveMQTopic(">")));
    }

    @Test
    void overALinkOfClassic() throws Exception {
        bridge(options -> { });
        endsAtOnce(false);
    }

    @Test
    void overADuplexLinkOfClassic() throws Exception {
        bridge(options -> options.setDuplex(true));
        endsAtOnce(true);
    }

    @Test
    void overALinkOfPostroad() throws Exception {
        dial();
        endsAtOnce(true);
    }

    @Test
    void whenALinkOfClassicComesBack() throws Exception {
        bridge(options -> syncs(options, false));
        endsLater(false);
    }

    @Test
    void whenADuplexLinkOfClassicComesBack() throws Exception {
        bridge(options -> syncs(options, true));
        endsLater(true);
    }

    @Test
    void byChangesHereWhileALinkOfClassicWasDown() throws Exception {
        changesHere(false);
    }

    @Test
    void byChangesHereWhileADuplexLinkOfClassicWasDown() throws Exception {
        changesHere(true);
    }

    @Test
    void whenALinkOfPostroadComesBack() throws Exception {
        dial();
        try (Subscriber there = new Subscriber(classic.url(), "news"); Subscriber away = new Subscriber(classic.url(), "kept.news")) {
            awaitHere("news", true);
            awaitHere("kept.news", true);
            away.leave();
            here.close();
            postroad.kill();
            there.unsubscribe();
            postroad.start();
            awaitHere("news", false);
            awaitHere("kept.news", true);
        }
    }
}

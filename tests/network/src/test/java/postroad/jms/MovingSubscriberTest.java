package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.fail;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;

import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;

import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.command.ActiveMQMessage;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** A durable subscriber that moves to another Postroad gets its messages there: each once, none lost. */
@Tag("postroad")
class MovingSubscriberTest {
    private static final String TOPIC = "news";
    /** A message in flight when its link was cut may wait for a minute. */
    private static final int IN_DOUBT_MS = 90_000;
    private static final int ROUNDS = 8;
    private static final int PER_ROUND = 40;

    private static String bridge(String url, String more) {
        return "broker_name = 'west'\n[[bridge]]\nname = 'east'\nto = ['" + url + "']\nduplex = true\nretry_ms = 50\nretry_max_ms = 50\n" + more;
    }

    private static void send(Broker broker, int from, int to) throws Exception {
        try (Connection connection = FeaturesOverLink.connect(broker.url())) {
            Session session = FeaturesOverLink.session(connection);
            NetworkTest.send(session, session.createTopic(TOPIC), from, to);
        }
    }

    /** The messages that wait in the subscriber's own subscription. */
    private static long waiting(Broker broker) throws Exception {
        return broker.command("ctl", "subscriptions", "--json").lines()
                .filter(row -> row.contains("kept") && !row.contains("NC-DS_"))
                .mapToLong(row -> Long.parseLong(row.replaceFirst(".*\"messages\":", "").split("[^0-9]", 2)[0])).sum();
    }

    private static void awaitWaiting(Broker broker, long messages) throws Exception {
        NetworkTest.eventually(messages + " messages wait", () -> waiting(broker) == messages);
    }

    private static void itFollows(String name, String more) throws Exception {
        try (Broker east = Broker.launch(name + "-east", "broker_name = 'east'\n");
                Broker west = Broker.launch(name + "-west", bridge(east.url(), more));
                Subscriber moving = new Subscriber(west.url(), TOPIC)) {
            send(west, 0, 5);
            NetworkTest.expect(moving.consumer, 0, 5);
            moving.leave();
            send(west, 5, 15);
            moving.attach(east.url());
            NetworkTest.expect(moving.consumer, 5, 15);
            Subscriber.awaitBridged(TOPIC, true, () -> Subscriber.isBridged(west, TOPIC));
            // From now on by the topic.
            send(west, 15, 20);
            NetworkTest.expect(moving.consumer, 15, 20);
            send(east, 20, 25);
            NetworkTest.expect(moving.consumer, 20, 25);
            NetworkTest.expectNothing(moving.consumer);
            moving.leave();
            send(west, 25, 30);
            awaitWaiting(east, 5);
            send(east, 30, 35);
            awaitWaiting(east, 10);
            moving.attach(west.url());
            NetworkTest.expect(moving.consumer, 25, 35);
            send(west, 35, 40);
            NetworkTest.expect(moving.consumer, 35, 40);
            Subscriber.awaitBridged(TOPIC, true, () -> Subscriber.isBridged(east, TOPIC));
            send(east, 40, 45);
            NetworkTest.expect(moving.consumer, 40, 45);
            NetworkTest.expectNothing(moving.consumer);
            // There and back at once, with and without messages.
            moving.leave();
            send(west, 45, 50);
            moving.attach(east.url());
            moving.leave();
            moving.attach(west.url());
            moving.leave();
            moving.attach(east.url());
            NetworkTest.expect(moving.consumer, 45, 50);
            NetworkTest.expectNothing(moving.consumer);
            moving.leave();
            awaitWaiting(west, 0);
            awaitWaiting(east, 0);
        }
    }

    @Test
    void itsMessagesFollowItThereAndBack() throws Exception {
        itFollows("move", "");
    }

    @Test
    void theyFollowItOverSeveralConnections() throws Exception {
        itFollows("move-links", "links = 3\n");
    }

    @Test
    void theyFollowItBesideAnotherSubscriberOfTheTopic() throws Exception {
        try (Broker east = Broker.launch("beside-east", "broker_name = 'east'\n");
                Broker west = Broker.launch("beside-west", bridge(east.url(), ""));
                Connection first = FeaturesOverLink.connect(east.url());
                Connection second = FeaturesOverLink.connect(west.url());
                Subscriber moving = new Subscriber(west.url(), TOPIC)) {
            // The link forwards the topic both ways already.
            Session atEast = FeaturesOverLink.session(first);
            MessageConsumer otherEast = atEast.createConsumer(atEast.createTopic(TOPIC));
            Session atWest = FeaturesOverLink.session(second);
            MessageConsumer otherWest = atWest.createConsumer(atWest.createTopic(TOPIC));
            Subscriber.awaitBridged(TOPIC, true, () -> Subscriber.isBridged(east, TOPIC));
            moving.leave();
            for (int number = 0; number < 200; number += 20) {
                send(number % 40 == 0 ? west : east, number, number + 10);
                Broker to = number % 40 == 0 ? east : west;
                int round = number;
                Thread sending = new Thread(() -> {
                    try {
                        for (Broker at : new Broker[] {west, east}) {
                            try (Connection connection = FeaturesOverLink.connect(at.url())) {
                                Session session = FeaturesOverLink.session(connection);
                                MessageProducer producer = session.createProducer(session.createTopic(TOPIC));
                                TextMessage message = session.createTextMessage("sent to " + at.url() + " in round " + round);
                                message.setIntProperty("number", -1);
                                producer.send(message);
                            }
                        }
                    } catch (Exception error) {
                        throw new IllegalStateException(error);
                    }
                });
                sending.start();
                moving.attach(to.url());
                sending.join();
                int[] times = new int[200];
                int between = 0;
                List<String> came = new ArrayList<>();
                for (Message message = moving.consumer.receive(1500); message != null; message = moving.consumer.receive(1500)) {
                    int received = message.getIntProperty("number");
                    if (received < 0) {
                        between++;
                        came.add(((TextMessage) message).getText());
                    } else {
                        times[received]++;
                    }
                }
                for (int sent = 0; sent < 200; sent++) {
                    assertEquals(number <= sent && sent < number + 10 ? 1 : 0, times[sent], "message " + sent + " of round " + number);
                }
                assertEquals(2, between, "sent while it moved, in round " + number + ": " + came);
                moving.leave();
            }
            int others = 0;
            while (otherEast.receive(300) != null) {
                others++;
            }
            assertEquals(100 + 20, others, "nobody else gets what follows");
            while (otherWest.receive(300) != null) {
                others--;
            }
            assertEquals(0, others, "nobody else gets what follows");
        }
    }

    @Test
    void twoWhoReadAtTheSameTimeEachGetAll() throws Exception {
        try (Broker east = Broker.launch("both-east", "broker_name = 'east'\n");
                Broker west = Broker.launch("both-west", bridge(east.url(), ""));
                Subscriber here = new Subscriber(west.url(), TOPIC);
                Subscriber there = new Subscriber(east.url(), TOPIC)) {
            Subscriber.awaitBridged(TOPIC, true, () -> Subscriber.isBridged(west, TOPIC));
            Subscriber.awaitBridged(TOPIC, true, () -> Subscriber.isBridged(east, TOPIC));
            send(west, 0, 10);
            NetworkTest.expect(here.consumer, 0, 10);
            NetworkTest.expect(there.consumer, 0, 10);
            send(east, 10, 20);
            NetworkTest.expect(here.consumer, 10, 20);
            NetworkTest.expect(there.consumer, 10, 20);
            NetworkTest.expectNothing(here.consumer);
            NetworkTest.expectNothing(there.consumer);
        }
    }

    @Test
    void aSelectorCountsAndAnotherOneIsAnotherSubscription() throws Exception {
        try (Broker east = Broker.launch("select-east", "broker_name = 'east'\n");
                Broker west = Broker.launch("select-west", bridge(east.url(), ""))) {
            select(west, "number >= 5").close();
            send(west, 0, 10);
            try (Connection connection = select(east, "number >= 5")) {
                MessageConsumer consumer = consumerOf(connection, "number >= 5");
                NetworkTest.expect(consumer, 5, 10);
                NetworkTest.expectNothing(consumer);
            }
            select(west, "number < 100").close();
            send(west, 50, 55);
            try (Connection connection = select(east, "number >= 5")) {
                MessageConsumer consumer = consumerOf(connection, "number >= 5");
                // Those of the topic; what the other selector has chosen stays.
                NetworkTest.expect(consumer, 50, 55);
                NetworkTest.expectNothing(consumer);
            }
            try (Connection connection = select(west, "number < 100")) {
                NetworkTest.expect(consumerOf(connection, "number < 100"), 50, 55);
            }
        }
    }

    /** A client that has made its subscription. */
    private static Connection select(Broker broker, String selector) throws Exception {
        Connection connection = new ActiveMQConnectionFactory(broker.url()).createConnection();
        connection.setClientID("selecting");
        connection.start();
        consumerOf(connection, selector).close();
        return connection;
    }

    private static MessageConsumer consumerOf(Connection connection, String selector) throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        return session.createDurableSubscriber(session.createTopic(TOPIC), "kept", selector, false);
    }

    /** Sends messages over a connection that outlives the broker. */
    private static Thread sending(Broker broker, int from, int to, Exception[] failed) {
        Thread thread = new Thread(() -> {
            String failover = "failover:(" + broker.url() + ")?initialReconnectDelay=20&useExponentialBackOff=false";
            try (Connection connection = new ActiveMQConnectionFactory(failover).createConnection()) {
                connection.start();
                Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                MessageProducer producer = session.createProducer(session.createTopic(TOPIC));
                producer.setDeliveryMode(DeliveryMode.PERSISTENT);
                for (int number = from; number < to; number++) {
                    TextMessage message = session.createTextMessage("message " + number);
                    message.setIntProperty("number", number);
                    producer.send(message);
                }
            } catch (Exception error) {
                failed[0] = error;
            }
        });
        thread.start();
        return thread;
    }

    /** Either broker is killed while messages follow; the subscriber is at the other one, or away. */
    @Test
    void killedBrokersLoseAndDoubleNothing() throws Exception {
        killBrokers(ROUNDS, false).expectAll(1);
    }

    /**
     * Messages are sent while the word of the move is on its way, too. If the new broker is killed then they may come twice, which
     * docs/features/bridges.md names as a limit; none is lost, and none comes more often.
     */
    @Test
    void messagesSentInTheMomentOfAMoveAreKept() throws Exception {
        killBrokers(ROUNDS / 2, true).expectAll(2);
    }

    /** All messages that have come, when a subscriber has moved to and fro. */
    private static Taken killBrokers(int standard, boolean sendsMeanwhile) throws Exception {
        Random random = new Random(Long.getLong("moves.seed", 11));
        int rounds = Integer.getInteger("moves.rounds", standard);
        Taken taken = new Taken(2 * rounds * PER_ROUND);
        try (Broker east = Broker.launch("moved-east", "broker_name = 'east'\n");
                Broker west = Broker.launch("moved-west", bridge(east.url(), ""));
                Subscriber moving = new Subscriber(west.url(), TOPIC)) {
            // East forwards from now on.
            Subscriber.awaitBridged(TOPIC, true, () -> Subscriber.isBridged(east, TOPIC));
            moving.leave();
            Broker[] brokers = {east, west};
            for (int round = 0; round < rounds; round++) {
                Exception[] failed = new Exception[1];
                int from = 2 * round * PER_ROUND;
                Broker home = brokers[round % 2];
                Broker other = brokers[1 - round % 2];
                if (!sendsMeanwhile) {
                    moving.attach(home.url());
                    NetworkTest.eventually("the former broker knows of the move", () -> isSetAside(other));
                }
                Thread first = sending(west, from, from + PER_ROUND, failed);
                Thread second = sending(east, from + PER_ROUND, from + 2 * PER_ROUND, failed);
                if (sendsMeanwhile) {
                    moving.attach(home.url());
                }
                // It takes some, and leaves the rest.
                taken.place = (home == east ? "east" : "west") + " in round " + round;
                taken.take(moving, random.nextInt(PER_ROUND));
                Thread.sleep(random.nextInt(200));
                Broker victim = random.nextBoolean() ? other : home;
                taken.note("kills " + (victim == east ? "east" : "west"));
                if (victim == home) {
                    moving.leave();
                }
                victim.kill();
                victim.start();
                first.join(NetworkTest.PATIENCE_MS);
                second.join(NetworkTest.PATIENCE_MS);
                assertNull(failed[0]);
                if (victim != home) {
                    taken.take(moving, random.nextInt(PER_ROUND));
                    moving.leave();
                }
            }
            moving.attach(east.url());
            taken.place = "east in the end";
            taken.takeAll(moving, brokers);
        }
        return taken;
    }

    /** Whether the subscription is known there to have moved. */
    private static boolean isSetAside(Broker broker) throws Exception {
        return broker.command("ctl", "subscriptions", "--json").contains("moving ");
    }

    /** The messages that a subscriber has taken: which, how often, where and when. */
    private static final class Taken {
        private final List<List<String>> receipts = new ArrayList<>();
        private final List<String> events = new ArrayList<>();
        private final long begin = System.currentTimeMillis();
        private int received;
        String place = "";

        Taken(int all) {
            for (int number = 0; number < all; number++) {
                receipts.add(new ArrayList<>());
            }
        }

        void note(String event) {
            events.add((System.currentTimeMillis() - begin) + " ms, " + place + ": " + event);
        }

        boolean next(Subscriber from, int patienceMs) throws Exception {
            ActiveMQMessage message = (ActiveMQMessage) from.consumer.receive(patienceMs);
            if (message == null) {
                return false;
            }
            received++;
            receipts.get(message.getIntProperty("number")).add(place + " at " + (System.currentTimeMillis() - begin) + " ms: " + message.getMessageId()
                    + " by " + message.getProducerId() + ", sent at " + (message.getTimestamp() - begin) + " ms, came at " + (message.getBrokerInTime() - begin)
                    + " ms" + (message.isRedelivered() ? ", redelivered" : ""));
            return true;
        }

        void take(Subscriber from, int most) throws Exception {
            note("takes " + most);
            for (int number = 0; number < most && next(from, 1000); number++) {
            }
            note("has " + received);
        }

        /** What is left, until nothing more comes. */
        void takeAll(Subscriber from, Broker[] brokers) throws Exception {
            note("takes the rest");
            while (receipts.stream().anyMatch(List::isEmpty) && next(from, IN_DOUBT_MS)) {
            }
            while (next(from, 300)) {
            }
            for (Broker broker : brokers) {
                events.add(broker.url() + "\n" + broker.command("ctl", "subscriptions") + broker.command("ctl", "queues")
                        + broker.command("ctl", "bridges"));
            }
        }

        /** All have come, none of them more often than so. A failure says which did not, and what the brokers had in the end. */
        void expectAll(int most) {
            StringBuilder wrong = new StringBuilder();
            int doubled = 0;
            for (int number = 0; number < receipts.size(); number++) {
                int times = receipts.get(number).size();
                doubled += times > 1 ? 1 : 0;
                if (times == 0 || most < times) {
                    wrong.append("\nmessage ").append(number).append(" has come ").append(times).append(" times");
                    receipts.get(number).forEach(receipt -> wrong.append("\n    ").append(receipt));
                }
            }
            if (most > 1) {
                System.out.println("moves: " + doubled + " of " + receipts.size() + " messages came twice");
            }
            if (wrong.length() > 0) {
                events.forEach(event -> wrong.append("\n").append(event));
                fail(received + " messages have come, " + receipts.size() + " were sent:" + wrong);
            }
        }
    }
}

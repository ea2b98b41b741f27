package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * Twenty times SIGKILL under load, on one data directory.
 *
 * <p>Producers send numbered messages to {@code in} and wait for each. Movers take them, send them to
 * {@code out} and commit, each message a transaction. A send or commit whose answer never came is in
 * doubt: it may have happened or not. All else is certain, and is checked:
 *
 * <pre>
 *   send confirmed         the message is in `in` or `out` at the end
 *   commit confirmed       the message is in `out`, and never comes from `in` again
 *   any commit             takes from `in` and puts into `out`, or neither
 *   twice in `out`         only if its send was in doubt and was repeated
 * </pre>
 */
@NeedsOwnBroker
@Isolated("its start-up times are measured")
@Timeout(7200) // Instead of what other tests get: PATIENCE decides.
@DisplayName("crash loop: kill -9 under load loses nothing and undoes nothing")
class CrashLoopTest extends PlainTest {
    private static final int CRASHES = Integer.getInteger("crash.count", 20);
    /** Every crash makes work: a start, and messages that are checked at the end. */
    private static final Duration PATIENCE = Duration.ofSeconds(200 + 2L * CRASHES);
    private static final Duration START_MAX = Duration.ofMillis(Integer.getInteger("start.max.ms", 1000));
    private static final int PRODUCERS = 3;
    private static final int MOVERS = 3;
    private static final long LOAD_MS = 250;

    private final Set<String> confirmedSends = ConcurrentHashMap.newKeySet();
    private final Set<String> inDoubtSends = ConcurrentHashMap.newKeySet();
    /** Message ids, so that a repeated in-doubt send counts as another message. */
    private final Set<String> confirmedMoves = ConcurrentHashMap.newKeySet();
    private final Set<String> movedAgain = ConcurrentHashMap.newKeySet();
    private final AtomicInteger inDoubtMoves = new AtomicInteger();
    private final AtomicBoolean stop = new AtomicBoolean();
    private final Queue in = queue("in");
    private final Queue out = queue("out");

    @Test
    @DisplayName("JMS 6.2.7, 3.4.2: twenty crashes")
    void twentyCrashes() {
        assertTimeoutPreemptively(PATIENCE, this::crashAgainAndAgain);
    }

    private void crashAgainAndAgain() throws Exception {
        List<Long> startsMs = new ArrayList<>();
        try (Broker broker = Broker.launch("crash-loop"); Clients clients = new Clients()) {
            for (int producer = 0; producer < PRODUCERS; producer++) {
                String name = "p" + producer + "-";
                clients.run(() -> produce(broker, name));
            }
            for (int mover = 0; mover < MOVERS; mover++) {
                clients.run(() -> move(broker));
            }
            for (int crash = 0; crash < CRASHES; crash++) {
                int movesBefore = confirmedMoves.size();
                Thread.sleep(LOAD_MS);
                awaitMoves(movesBefore + 1, broker);
                broker.kill();
                startsMs.add(broker.start().toMillis());
            }
            awaitMoves(confirmedMoves.size() + 10, broker);
            stop.set(true);
            clients.join(60);
            System.out.println("crash loop (" + System.getProperty("jms.client") + "): " + confirmedSends.size()
                    + " sends and " + confirmedMoves.size() + " moves confirmed, " + inDoubtSends.size() + " and "
                    + inDoubtMoves + " in doubt; starts in ms: " + startsMs);
            check(broker);
        } finally {
            stop.set(true);
        }
        // Single starts are at the mercy of whatever else the machine does.
        long medianMs = startsMs.stream().sorted().skip(startsMs.size() / 2).findFirst().orElseThrow();
        assertTrue(medianMs < START_MAX.toMillis(), () -> "starts take too long; all in ms: " + startsMs);
    }

    private void awaitMoves(int count, Broker broker) throws InterruptedException {
        long end = System.currentTimeMillis() + 20_000;
        while (confirmedMoves.size() < count) {
            assertTrue(broker.isAlive(), () -> "the broker died by itself: " + broker.obituary());
            assertTrue(System.currentTimeMillis() < end, () -> "no progress beyond " + confirmedMoves.size()
                    + " moves and " + confirmedSends.size() + " sends");
            Thread.sleep(5);
        }
    }

    /** A piece of work on one connection; ends by an exception when the broker is gone. */
    private interface Work {
        void on(Connection connection) throws JMSException;
    }

    /** Does the work on one connection after the other, until the test says stop. */
    private void keepWorking(Broker broker, Work work) throws InterruptedException {
        while (!stop.get()) {
            Connection connection = null;
            try {
                connection = open(broker, "jms.prefetchPolicy.all=20");
                work.on(connection);
            } catch (JMSException brokerGone) {
                Thread.sleep(20);
            } finally {
                closeQuietly(connection);
            }
        }
    }

    private static void closeQuietly(Connection connection) {
        if (connection == null) {
            return;
        }
        try {
            connection.close();
        } catch (JMSException brokerGone) {
            // Nothing is left to close.
        }
    }

    private Void produce(Broker broker, String name) throws InterruptedException {
        AtomicInteger number = new AtomicInteger();
        keepWorking(broker, connection -> {
            Session session = autoAcknowledge(connection);
            MessageProducer producer = session.createProducer(in);
            while (!stop.get()) {
                String text = name + number.get();
                Message message = session.createTextMessage(text);
                try {
                    producer.send(message);
                } catch (JMSException unanswered) {
                    inDoubtSends.add(text);
                    throw unanswered;
                }
                confirmedSends.add(text);
                number.incrementAndGet();
            }
        });
        return null;
    }

    private Void move(Broker broker) throws InterruptedException {
        keepWorking(broker, connection -> {
            Session session = transacted(connection);
            MessageConsumer consumer = session.createConsumer(in);
            MessageProducer producer = session.createProducer(out);
            while (!stop.get()) {
                Message message = consumer.receive(100);
                if (message != null) {
                    moveOne(session, producer, message);
                }
            }
        });
        return null;
    }

    private void moveOne(Session session, MessageProducer producer, Message message) throws JMSException {
        String id = message.getJMSMessageID();
        if (confirmedMoves.contains(id)) {
            movedAgain.add(text(message) + " " + id);
        }
        Message copy = session.createTextMessage(text(message));
        copy.setStringProperty("from", id);
        producer.send(copy);
        try {
            session.commit();
        } catch (JMSException unanswered) {
            inDoubtMoves.incrementAndGet();
            throw unanswered;
        }
        confirmedMoves.add(id);
    }

    private void check(Broker broker) throws JMSException {
        Map<String, Integer> movedFrom = new HashMap<>();
        Map<String, Integer> copies = new HashMap<>();
        Set<String> undone = new TreeSet<>(movedAgain);
        Set<String> halfDone = new TreeSet<>();
        Connection connection = open(broker, "jms.prefetchPolicy.all=20");
        drain(connection, out, message -> {
            movedFrom.merge(message.getStringProperty("from"), 1, Integer::sum);
            copies.merge(text(message), 1, Integer::sum);
        });
        drain(connection, in, message -> {
            String id = message.getJMSMessageID();
            copies.merge(text(message), 1, Integer::sum);
            if (confirmedMoves.contains(id)) {
                undone.add(text(message) + " " + id);
            }
            if (movedFrom.containsKey(id)) {
                halfDone.add(text(message) + " " + id);
            }
        });
        connection.close();
        movedFrom.forEach((id, times) -> {
            if (times > 1) {
                halfDone.add(id + " moved " + times + " times");
            }
        });
        Set<String> lost = missing(confirmedSends, copies.keySet());
        Set<String> lostMoves = missing(confirmedMoves, movedFrom.keySet());
        copies.values().removeIf(times -> times == 1);
        copies.keySet().removeAll(inDoubtSends);
        assertEquals(Set.of(), lost, "sends confirmed, then lost");
        assertEquals(Set.of(), lostMoves, "moves confirmed, then lost from the target");
        assertEquals(Set.of(), undone, "receives committed, then undone");
        assertEquals(Set.of(), halfDone, "moves half done, or done twice");
        assertEquals(Map.of(), copies, "doubled, though never in doubt");
    }

    private static Set<String> missing(Set<String> confirmed, Set<String> found) {
        return confirmed.stream().filter(one -> !found.contains(one)).collect(Collectors.toCollection(TreeSet::new));
    }

    /** Looks at a message and lets it go: there may be half a million. */
    private interface Look {
        void at(Message message) throws JMSException;
    }

    private static void drain(Connection connection, Queue queue, Look look) throws JMSException {
        MessageConsumer consumer = autoAcknowledge(connection).createConsumer(queue);
        for (Message next = consumer.receive(3000); next != null; next = consumer.receive(1000)) {
            look.at(next);
        }
        consumer.close();
    }
}

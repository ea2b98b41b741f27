package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

/**
 * The outcome of each send and of each acknowledgement, by the text of the message: QUEUE/NUMBER, numbered from 0 in each queue.
 *
 * <pre>
 *   send returned      the message comes, once, in order
 *   commit returned    the message never comes again
 *   commit failed      it may have happened or not: in doubt
 * </pre>
 */
final class Ledger {
    final AtomicReference<Throwable> failure = new AtomicReference<>();
    final MessageSet sent = new MessageSet();
    /** Sent by a client that lost its connection before the answer, and then sent the message again by itself. */
    final Set<String> sentTwice = ConcurrentHashMap.newKeySet();
    final MessageSet committed = new MessageSet();
    final MessageSet inDoubt = new MessageSet();
    /** Commits that ended with an error for the application, and the error. */
    final Set<String> failedCommits = ConcurrentHashMap.newKeySet();
    /** Sends that were refused as a disk was full, and are in no other set. */
    final AtomicInteger refused = new AtomicInteger();
    /** Messages that came although they, or later ones, had been committed, and how. */
    private final Map<String, String> again = new ConcurrentHashMap<>();
    private final Set<String> gaps = ConcurrentHashMap.newKeySet();

    /** A message has come where the one with the number {@code next} was due. Returns its number. */
    int received(String text, int next, boolean redelivered) {
        int number = MessageSet.number(text);
        // A message whose commit was in doubt may come again, or not.
        if (committed.contains(text) && !inDoubt.contains(text)) {
            again.put(text, "redelivered: " + redelivered + ", next: " + next);
        }
        if (number > next) {
            gaps.add(text + " in place of " + next);
        } else if (number < next && !inDoubt.contains(text)) {
            again.put(text, "in place of " + next);
        }
        return number;
    }

    /** Sends that were confirmed, and neither received nor in doubt. */
    MessageSet missing() {
        return sent.without(committed.with(inDoubt));
    }

    /** Call it when all clients have ended. */
    void assertNothingLostOrDoubled() {
        assertEquals(null, failure.get(), "a client failed");
        assertEquals(Set.of(), missing(), "sends confirmed, then lost");
        // The second copy of a send may come before its client knows that it sent twice: therefore here.
        again.keySet().removeAll(sentTwice);
        assertEquals(Map.of(), again, "messages that came again after their commit, or after a later one");
        assertEquals(Set.of(), gaps, "gaps in a producer's sequence");
    }

    @Override
    public String toString() {
        return sent.size() + " sends (" + sentTwice.size() + " by the client again), " + committed.size() + " commits, "
                + inDoubt.size() + " in doubt, " + failedCommits.size() + " commits failed, " + refused.get() + " sends refused";
    }
}

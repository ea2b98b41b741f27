package postroad.cluster;

import java.util.AbstractSet;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** A set of messages by their texts, QUEUE/NUMBER, in one bit each: an hour of load has millions. Threads may share it. */
final class MessageSet extends AbstractSet<String> {
    private final Map<String, BitSet> queues = new TreeMap<>();
    private int size;

    static int number(String text) {
        return Integer.parseInt(text.substring(text.indexOf('/') + 1));
    }

    private static String queue(String text) {
        return text.substring(0, text.indexOf('/'));
    }

    @Override
    public synchronized boolean add(String text) {
        BitSet numbers = queues.computeIfAbsent(queue(text), queue -> new BitSet());
        int number = number(text);
        if (numbers.get(number)) {
            return false;
        }
        numbers.set(number);
        size++;
        return true;
    }

    @Override
    public synchronized boolean contains(Object text) {
        BitSet numbers = queues.get(queue((String) text));
        return numbers != null && numbers.get(number((String) text));
    }

    @Override
    public synchronized int size() {
        return size;
    }

    /** The messages of both. */
    MessageSet with(MessageSet other) {
        MessageSet both = copy();
        other.copy().queues.forEach((queue, numbers) -> both.queues.computeIfAbsent(queue, unknown -> new BitSet()).or(numbers));
        return both.counted();
    }

    /** The messages that the other set does not have. */
    MessageSet without(MessageSet other) {
        MessageSet rest = copy();
        other.copy().queues.forEach((queue, numbers) -> rest.queues.computeIfAbsent(queue, unknown -> new BitSet()).andNot(numbers));
        return rest.counted();
    }

    private synchronized MessageSet copy() {
        MessageSet copy = new MessageSet();
        queues.forEach((queue, numbers) -> copy.queues.put(queue, (BitSet) numbers.clone()));
        return copy.counted();
    }

    private MessageSet counted() {
        size = queues.values().stream().mapToInt(BitSet::cardinality).sum();
        return this;
    }

    /** The messages of this moment. */
    @Override
    public synchronized Iterator<String> iterator() {
        List<String> texts = new ArrayList<>(size);
        queues.forEach((queue, numbers) -> numbers.stream().forEach(number -> texts.add(queue + "/" + number)));
        return Collections.unmodifiableList(texts).iterator();
    }
}

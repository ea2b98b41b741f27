package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.transport.DefaultTransportListener;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Three nodes, and unmodified clients with {@code failover:}, which are not told of anything.
 *
 * <p>Each queue has a producer that waits for every send, and a consumer that commits every message. Its messages are numbered:
 *
 * <pre>
 *   send returned      the message comes, once, in order
 *   commit returned    the message never comes again
 *   commit failed      it may have happened or not
 * </pre>
 */
@Timeout(150)
@DisplayName("failover: three nodes lose and double nothing")
class FailoverTest {
    private static final int QUEUES = 3;

    private Cluster cluster;
    private List<Node> nodes;
    private final List<Thread> threads = new ArrayList<>();
    private final AtomicBoolean stopSending = new AtomicBoolean();
    private final AtomicBoolean stopReceiving = new AtomicBoolean();
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private final AtomicInteger sends = new AtomicInteger();
    private final Set<String> sent = ConcurrentHashMap.newKeySet();
    private final Set<String> committed = ConcurrentHashMap.newKeySet();
    private final Set<String> inDoubt = ConcurrentHashMap.newKeySet();
    private final Set<String> again = ConcurrentHashMap.newKeySet();
    private final Set<String> outOfOrder = ConcurrentHashMap.newKeySet();

    @BeforeEach
    void startNodes() throws Exception {
        cluster = new Cluster("failover", failure::get);
        nodes = cluster.nodes;
    }

    @AfterEach
    void endNodes() throws Exception {
        stopSending.set(true);
        stopReceiving.set(true);
        cluster.close();
    }

    private void await(String event, Cluster.Condition condition) throws Exception {
        cluster.await(event, condition);
    }

    private Node leader() throws Exception {
        return cluster.leader();
    }

    /** How long it takes until sends are confirmed again, after a step that ends the leader. */
    private long millisUntilSends(Cluster.Condition step) throws Exception {
        int before = sends.get();
        await("sends before the fault", () -> sends.get() > before + 20);
        long began = System.nanoTime();
        step.holds();
        // What was confirmed a moment before was counted since.
        Thread.sleep(50);
        int at = sends.get();
        await("a send after the fault", () -> sends.get() > at);
        return (System.nanoTime() - began) / 1_000_000;
    }

    @Test
    @DisplayName("kill -9, a pause and an orderly end of the leader, under load")
    void theLeaderGoes() throws Exception {
        Node first = leader();
        for (Node node : nodes) {
            if (node != first) {
                await(node.name + " follows", node::follows);
            }
        }
        for (int queue = 0; queue < QUEUES; queue++) {
            String name = "cluster." + queue;
            run(() -> produce(name));
            run(() -> consume(name));
        }
        await("commits", () -> committed.size() > 30);

        long killedMs = millisUntilSends(() -> {
            first.signal("KILL");
            first.awaitEnd();
            return true;
        });
        first.start();
        await("the killed node follows", first::follows);

        Node second = leader();
        long pausedMs = millisUntilSends(() -> {
            second.signal("STOP");
            return true;
        });
        second.signal("CONT");
        await("the paused node follows", second::follows);

        Node third = leader();
        long endedMs = millisUntilSends(() -> {
            third.signal("TERM");
            third.awaitEnd();
            return true;
        });
        third.start();
        await("the ended node follows", third::follows);

        // Every node has seen each other one go: the last leader knows that all have everything.
        Node last = leader();
        stopSending.set(true);
        await("the last message", () -> seen().containsAll(sent));
        await("all replicas are up to date", () -> lagsOf(last).equals(List.of("0", "0", "0")));
        stopReceiving.set(true);
        for (Thread thread : threads) {
            thread.join(Cluster.WITHIN_MS);
        }
        assertEquals(null, failure.get(), "a client failed");
        System.out.println("failover: " + sent.size() + " sends, " + committed.size() + " commits, " + inDoubt.size()
                + " in doubt; ms until sends were confirmed again: killed " + killedMs + ", paused " + pausedMs + ", ended " + endedMs);
        Set<String> lost = new TreeSet<>(sent);
        lost.removeAll(seen());
        assertEquals(Set.of(), lost, "sends confirmed, then lost");
        assertEquals(Set.of(), again, "messages that came again after their commit");
        assertEquals(Set.of(), outOfOrder, "messages before an earlier one of their producer");
        assertTrue(killedMs < 10_000, () -> "kill -9 of the leader held up sends for " + killedMs + " ms");
    }

    private Set<String> seen() {
        Set<String> seen = new TreeSet<>(committed);
        seen.addAll(inDoubt);
        return seen;
    }

    private static List<String> lagsOf(Node node) throws InterruptedException {
        return java.util.regex.Pattern.compile("\"lag\":(\\d+|null)").matcher(node.cluster()).results()
                .map(found -> found.group(1)).collect(Collectors.toList());
    }

    private interface Work {
        void run() throws Exception;
    }

    private void run(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Throwable thrown) {
                failure.compareAndSet(null, thrown);
            }
        });
        thread.setDaemon(true);
        thread.start();
        threads.add(thread);
    }

    private Connection connect() throws JMSException {
        String urls = nodes.stream().map(Node::url).collect(Collectors.joining(","));
        String url = "failover:(" + urls + ")?maxReconnectDelay=200&nested.wireFormat.maxInactivityDuration=2000"
                + "&nested.wireFormat.maxInactivityDurationInitalDelay=2000&jms.prefetchPolicy.all=50";
        Connection connection = new ActiveMQConnectionFactory(url).createConnection();
        connection.start();
        return connection;
    }

    private void produce(String queue) throws JMSException {
        Connection connection = connect();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(session.createQueue(queue));
        for (int number = 0; !stopSending.get(); number++) {
            String text = queue + "/" + number;
            producer.send(session.createTextMessage(text));
            sent.add(text);
            sends.incrementAndGet();
        }
        connection.close();
    }

    /**
     * When the connection is lost, this client forgets the messages in its hands a moment later, and commits without an
     * acknowledgement for them (ActiveMQMessageConsumer.acknowledge): until then a commit says nothing.
     */
    private static final long CLEARS_WITHIN_NANOS = 200_000_000;

    private void consume(String queue) throws JMSException {
        Connection connection = connect();
        AtomicLong interruptedNanos = new AtomicLong(System.nanoTime() - CLEARS_WITHIN_NANOS);
        ((ActiveMQConnection) connection).addTransportListener(new DefaultTransportListener() {
            @Override
            public void transportInterupted() {
                interruptedNanos.set(System.nanoTime());
            }
        });
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
        int next = 0;
        while (!stopReceiving.get()) {
            long beganNanos = System.nanoTime();
            Message message = consumer.receive(200);
            if (message == null) {
                continue;
            }
            String text = ((TextMessage) message).getText();
            int number = Integer.parseInt(text.substring(text.indexOf('/') + 1));
            // A commit that failed leaves a copy in the client, which comes again after its redelivery delay even if the broker's was
            // committed since: a message that was ever in doubt says nothing.
            if (committed.contains(text) && !inDoubt.contains(text)) {
                again.add(text + " (redelivered: " + message.getJMSRedelivered() + ", next: " + next + ")");
            }
            // One whose commit failed may come again, or not.
            if (number > next || number < next && !inDoubt.contains(text)) {
                outOfOrder.add(text + " in place of " + next);
            }
            try {
                session.commit();
                boolean isConfirmed = beganNanos - interruptedNanos.get() >= CLEARS_WITHIN_NANOS;
                (isConfirmed ? committed : inDoubt).add(text);
            } catch (JMSException unanswered) {
                inDoubt.add(text);
            }
            next = number + 1;
        }
        connection.close();
    }
}

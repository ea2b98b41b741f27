package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.InputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;

import org.apache.activemq.ActiveMQConnectionFactory;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Three Postroads, each linked with the others, and consumers that move from one to another. */
@Tag("postroad")
class MovingConsumersTest {
    /** A minute, and ten by night. */
    private static final int SECONDS = Integer.getInteger("network.seconds", 60);
    private static final int CONSUMERS = 2;
    private static final int BODY_BYTES = 4096;
    private static final int MESSAGES_MAX = 100_000;
    private static final long WAIT_MAX_MS = 1000;

    private final AtomicBoolean ended = new AtomicBoolean();
    private final AtomicReference<Throwable> failed = new AtomicReference<>();
    private final AtomicIntegerArray times = new AtomicIntegerArray(MESSAGES_MAX);
    private final AtomicInteger sent = new AtomicInteger();
    private final AtomicInteger consumed = new AtomicInteger();
    /** Messages that were consumed at another broker than that which they were sent to. */
    private final AtomicInteger moved = new AtomicInteger();
    private final AtomicInteger waitsSeen = new AtomicInteger();
    private final AtomicInteger idleSeen = new AtomicInteger();
    private final AtomicLong longestWaitMs = new AtomicLong();

    private interface Work {
        void run() throws Exception;
    }

    private Thread thread(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Throwable error) {
                failed.compareAndSet(null, error);
            }
        });
        thread.start();
        return thread;
    }

    private static String bridge(String name, int port) {
        return "[[bridge]]\nname = '" + name + "'\nto = ['tcp://127.0.0.1:" + port
                + "']\nduplex = true\nlinks = 1\nmessage_ttl = -1\ninclude = ['queue://work']\n";
    }

    private static Connection connect(String url) throws Exception {
        // A consumer that goes gives back all but the message in its hands.
        Connection connection = new ActiveMQConnectionFactory(url + "?jms.prefetchPolicy.queuePrefetch=20").createConnection();
        connection.start();
        return connection;
    }

    /** Sends a message every few milliseconds, to one broker after another. */
    private void produce(List<Broker> brokers) throws Exception {
        List<Connection> connections = new ArrayList<>();
        List<Session> sessions = new ArrayList<>();
        List<MessageProducer> producers = new ArrayList<>();
        for (Broker broker : brokers) {
            Connection connection = connect(broker.url());
            connections.add(connection);
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            sessions.add(session);
            MessageProducer producer = session.createProducer(session.createQueue("work"));
            producer.setDeliveryMode(DeliveryMode.PERSISTENT);
            producers.add(producer);
        }
        long until = System.nanoTime() + SECONDS * 1_000_000_000L;
        while (System.nanoTime() < until && failed.get() == null) {
            int number = sent.get();
            int at = number % brokers.size();
            BytesMessage message = sessions.get(at).createBytesMessage();
            message.writeBytes(new byte[BODY_BYTES]);
            message.setIntProperty("number", number);
            message.setIntProperty("at", at);
            producers.get(at).send(message);
            sent.incrementAndGet();
            Thread.sleep(10);
        }
        for (Connection connection : connections) {
            connection.close();
        }
    }

    /** Consumes at a random broker for a few seconds, then at another one. */
    private void consume(List<Broker> brokers, Random random) throws Exception {
        while (!ended.get()) {
            int at = random.nextInt(brokers.size());
            try (Connection connection = connect(brokers.get(at).url())) {
                Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                MessageConsumer consumer = session.createConsumer(session.createQueue("work"));
                long until = System.nanoTime() + (1500 + random.nextInt(2500)) * 1_000_000L;
                while (System.nanoTime() < until && !ended.get()) {
                    Message message = consumer.receive(100);
                    if (message != null) {
                        times.incrementAndGet(message.getIntProperty("number"));
                        moved.addAndGet(message.getIntProperty("at") == at ? 0 : 1);
                        consumed.incrementAndGet();
                    }
                }
            }
        }
    }

    private static long number(String row, String member) {
        int at = row.indexOf("\"" + member + "\":");
        return at < 0 ? 0 : Long.parseLong(row.substring(at + member.length() + 3).split("[^0-9]", 2)[0]);
    }

    private static String get(Broker broker, String path) throws Exception {
        int offset = URI.create(broker.url()).getPort() - 61616;
        try (InputStream answer = URI.create("http://127.0.0.1:" + (8161 + offset) + path).toURL().openStream()) {
            return new String(answer.readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    /** Looks whether messages wait at one broker while a consumer is idle at another one. */
    private void watch(List<Broker> brokers) throws Exception {
        long since = 0;
        while (!ended.get()) {
            boolean waits = false;
            boolean isIdle = false;
            for (Broker broker : brokers) {
                String queue = get(broker, "/api/v1/queues?filter=work");
                waits |= number(queue, "messages") > number(queue, "in_flight");
                for (String row : get(broker, "/api/v1/consumers?destination=work").split("\\},")) {
                    isIdle |= row.contains("\"priority\":0") && number(row, "credit") > 0 && number(row, "held") == 0;
                }
            }
            waitsSeen.addAndGet(waits ? 1 : 0);
            idleSeen.addAndGet(isIdle ? 1 : 0);
            long now = System.nanoTime();
            since = waits && isIdle ? (since == 0 ? now : since) : 0;
            long waited = since == 0 ? 0 : (now - since) / 1_000_000;
            longestWaitMs.accumulateAndGet(waited, Math::max);
            Thread.sleep(50);
        }
    }

    @Test
    void everythingIsConsumedOnceAndNothingWaitsBesideAnIdleConsumer() throws Exception {
        try (Broker a = Broker.launch("moving-a");
                Wire ba = new Wire(URI.create(a.url()).getPort());
                Broker b = Broker.launch("moving-b", bridge("ba", ba.port()));
                Wire cb = new Wire(URI.create(b.url()).getPort());
                Wire ca = new Wire(URI.create(a.url()).getPort());
                Broker c = Broker.launch("moving-c", bridge("cb", cb.port()) + bridge("ca", ca.port()))) {
            List<Broker> brokers = List.of(a, b, c);
            for (Broker broker : brokers) {
                NetworkTest.eventually("each is linked with two", () ->
                        broker.command("ctl", "bridges", "--json").lines().filter(row -> row.contains("\"linked\"")).count() == 2);
            }
            List<Thread> threads = new ArrayList<>();
            for (int consumer = 0; consumer < CONSUMERS; consumer++) {
                Random random = new Random(consumer);
                threads.add(thread(() -> consume(brokers, random)));
            }
            threads.add(thread(() -> watch(brokers)));
            thread(() -> produce(brokers)).join();
            NetworkTest.eventually("all is consumed", () -> failed.get() != null || consumed.get() >= sent.get());
            ended.set(true);
            for (Thread thread : threads) {
                thread.join();
            }
            if (failed.get() != null) {
                throw new AssertionError(failed.get());
            }
            for (int number = 0; number < sent.get(); number++) {
                assertEquals(1, times.get(number), "message " + number);
            }
            double payload = (double) moved.get() * BODY_BYTES;
            double traffic = (ba.bytes() + cb.bytes() + ca.bytes()) / payload;
            long dispatched = 0;
            long bytes = 0;
            for (Broker broker : brokers) {
                for (String row : get(broker, "/api/v1/bridges").split("\\},")) {
                    dispatched += number(row, "dispatched");
                    bytes += number(row, "dispatched_bytes");
                }
            }
            System.out.printf("%d messages passed a link, %d bytes of them, %d bytes in all; waits %d idle %d%n",
                    dispatched, bytes, ba.bytes() + cb.bytes() + ca.bytes(), waitsSeen.get(), idleSeen.get());
            System.out.printf("sent %d, moved %d, longest wait %d ms, traffic %.2f of the payload%n",
                    sent.get(), moved.get(), longestWaitMs.get(), traffic);
            assertTrue(longestWaitMs.get() <= WAIT_MAX_MS, "a message waited for " + longestWaitMs.get() + " ms beside an idle consumer");
            assertTrue(traffic <= 1.3, "traffic is " + traffic + " times the payload that moved");
        }
    }
}

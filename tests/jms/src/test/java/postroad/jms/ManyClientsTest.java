package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** JMS 2.0 section 6.2.9 (order) with many clients at once: nothing lost, doubled or out of order. */
@DisplayName("JMS 6.2.9: many clients at once")
class ManyClientsTest extends PlainTest {
    private static final int QUEUES = 4;
    private static final int PAIRS = 20;
    private static final int EACH = 100;

    @ParameterizedTest(name = "transacted: {0}, prefetch {1}")
    @CsvSource({"false,1000", "false,1", "true,100"})
    @DisplayName("JMS 6.2.9: 20 producers and 20 consumers on 4 queues")
    void queues(boolean transacted, int prefetch) throws Exception {
        List<Queue> queues = new ArrayList<>();
        for (int queue = 0; queue < QUEUES; queue++) {
            queues.add(queue("q" + queue));
        }
        Set<String> arrived = ConcurrentHashMap.newKeySet();
        AtomicBoolean sent = new AtomicBoolean();
        try (Clients producers = new Clients(); Clients consumers = new Clients()) {
            for (int pair = 0; pair < PAIRS; pair++) {
                Queue queue = queues.get(pair % QUEUES);
                int producer = pair;
                consumers.run(() -> consume(queue, transacted, prefetch, sent, arrived));
                producers.run(() -> produce(queue, transacted, producer));
            }
            producers.join(40);
            sent.set(true);
            consumers.join(40);
        }
        assertEquals(PAIRS * EACH, arrived.size(), "messages that arrived");
        for (Queue queue : queues) {
            assertEmpty(queue);
        }
    }

    private Void produce(Queue queue, boolean transacted, int name) throws JMSException {
        var connection = connect();
        Session session = transacted ? transacted(connection) : autoAcknowledge(connection);
        MessageProducer producer = session.createProducer(queue);
        for (int number = 0; number < EACH; number++) {
            Message message = session.createTextMessage("x".repeat(number));
            message.setIntProperty("producer", name);
            message.setIntProperty("number", number);
            producer.send(message);
            if (transacted && number % 10 == 9) {
                session.commit();
            }
        }
        return null;
    }

    private Void consume(Queue queue, boolean transacted, int prefetch, AtomicBoolean sent,
            Set<String> arrived) throws JMSException {
        var connection = connect("jms.prefetchPolicy.all=" + prefetch);
        Session session = transacted ? transacted(connection) : autoAcknowledge(connection);
        MessageConsumer consumer = session.createConsumer(queue);
        Map<Integer, Integer> last = new HashMap<>();
        while (true) {
            boolean allSent = sent.get();
            Message message = consumer.receive(500);
            if (message == null && allSent) {
                connection.close();
                return null;
            }
            if (message == null) {
                continue;
            }
            int producer = message.getIntProperty("producer");
            int number = message.getIntProperty("number");
            Integer before = last.put(producer, number);
            assertTrue(before == null || before < number, () -> "producer " + producer + ": " + number
                    + " arrived after " + before);
            assertTrue(arrived.add(producer + "/" + number), () -> producer + "/" + number + " arrived twice");
            assertEquals("x".repeat(number), text(message));
            if (transacted) {
                session.commit();
            }
        }
    }

    @ParameterizedTest(name = "{0} messages, slow subscriber''s prefetch {1}")
    @CsvSource({"900,32766", "900,50"})
    @DisplayName("JMS 8.3: a topic's ten subscribers each get everything, however slow one of them is")
    void topicWithSlowSubscriber(int messages, int slowPrefetch) throws Exception {
        Topic topic = topic("fan.out");
        int subscribers = 10;
        CountDownLatch subscribed = new CountDownLatch(subscribers);
        try (Clients clients = new Clients()) {
            List<Future<List<String>>> received = new ArrayList<>();
            for (int subscriber = 0; subscriber < subscribers; subscriber++) {
                int pauseEvery = subscriber == 0 ? 30 : 0;
                int prefetch = subscriber == 0 ? slowPrefetch : 32766;
                received.add(clients.run(() -> subscribe(topic, messages, prefetch, pauseEvery, subscribed)));
            }
            subscribed.await();
            Session session = autoAcknowledge(connect());
            MessageProducer producer = session.createProducer(topic);
            producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
            for (String text : numbered("m", messages)) {
                producer.send(session.createTextMessage(text));
            }
            clients.join(50);
            for (Future<List<String>> one : received) {
                assertEquals(List.of(numbered("m", messages)), one.get());
            }
        }
    }

    private List<String> subscribe(Topic topic, int messages, int prefetch, int pauseEvery,
            CountDownLatch subscribed) throws Exception {
        Session session = autoAcknowledge(connect("jms.prefetchPolicy.topicPrefetch=" + prefetch));
        MessageConsumer consumer = session.createConsumer(topic);
        subscribed.countDown();
        List<String> texts = new ArrayList<>();
        while (texts.size() < messages) {
            texts.add(text(receive(consumer)));
            if (pauseEvery > 0 && texts.size() % pauseEvery == 0) {
                Thread.sleep(50);
            }
        }
        return texts;
    }

    @Test
    @DisplayName("JMS 6.2.5: many sessions of one connection work side by side")
    void manySessionsOfOneConnection() throws Exception {
        var connection = connect();
        Queue queue = queue("sessions");
        Set<String> arrived = ConcurrentHashMap.newKeySet();
        CountDownLatch all = new CountDownLatch(PAIRS * EACH);
        for (int consumer = 0; consumer < PAIRS; consumer++) {
            autoAcknowledge(connection).createConsumer(queue).setMessageListener(message -> {
                try {
                    arrived.add(text(message));
                    all.countDown();
                } catch (JMSException unreadable) {
                    arrived.add(unreadable.toString());
                }
            });
        }
        Set<String> want = new TreeSet<>();
        try (Clients clients = new Clients()) {
            for (int producer = 0; producer < PAIRS; producer++) {
                String[] texts = numbered("p" + producer + " m", EACH);
                want.addAll(List.of(texts));
                clients.run(() -> {
                    send(autoAcknowledge(connection), queue, texts);
                    return null;
                });
            }
            clients.join(40);
        }
        assertTrue(all.await(PATIENCE_MS, java.util.concurrent.TimeUnit.MILLISECONDS), () -> all.getCount() + " missing");
        assertEquals(want, new TreeSet<>(arrived));
        assertEmpty(queue);
    }
}

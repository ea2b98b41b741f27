package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.command.ActiveMQQueue;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Consumers of every queue that a pattern matches. */
@DisplayName("consumers of patterns of queues")
class QueuePatternTest extends JmsTest {
    private static String queueName(Message message) throws Exception {
        return ((Queue) message.getJMSDestination()).getQueueName();
    }

    /** For example {@code ".x m1"}: the end of the queue's name, and the text. */
    private static List<String> seen(MessageConsumer consumer, String name, int count) throws Exception {
        List<String> seen = new ArrayList<>();
        while (seen.size() < count) {
            Message message = consumer.receive(PATIENCE_MS);
            if (message == null) {
                break;
            }
            seen.add(queueName(message).substring(name.length()) + " " + text(message));
        }
        return seen;
    }

    private static List<String> of(String queue, List<String> seen) {
        return seen.stream().filter(line -> line.startsWith(queue + " ")).toList();
    }

    @Test
    @DisplayName("queues that are there and queues to come, each in its order, each message with its queue")
    void readsEveryQueueOfThePattern() throws Exception {
        String name = unique("reads");
        Session session = autoAcknowledge(connect());
        send(session, new ActiveMQQueue(name + ".x"), numbered("m", 5));
        send(session, new ActiveMQQueue(name + ".x.deep"), "d");
        send(session, new ActiveMQQueue(name + "other"), "o");
        MessageConsumer rest = session.createConsumer(new ActiveMQQueue(name + ".>"));
        List<String> seen = seen(rest, name, 6);
        assertEquals(List.of(".x m0", ".x m1", ".x m2", ".x m3", ".x m4"), of(".x", seen));
        assertEquals(List.of(".x.deep d"), of(".x.deep", seen));
        Session other = autoAcknowledge(connect());
        send(other, new ActiveMQQueue(name + ".y"), numbered("n", 3));
        send(other, new ActiveMQQueue(name + ".x"), "m5");
        seen = seen(rest, name, 4);
        assertEquals(List.of(".y n0", ".y n1", ".y n2"), of(".y", seen));
        assertEquals(List.of(".x m5"), of(".x", seen));
        rest.close();
        for (String each : List.of(".x", ".x.deep", ".y")) {
            assertEmpty(new ActiveMQQueue(name + each));
        }
        assertEquals(List.of("o"), texts(session.createConsumer(new ActiveMQQueue(name + "other")), 1));
    }

    @Test
    @DisplayName("a star is one word")
    void starIsOneWord() throws Exception {
        String name = unique("star");
        Session session = autoAcknowledge(connect());
        MessageConsumer words = session.createConsumer(new ActiveMQQueue(name + ".*.in"));
        send(session, new ActiveMQQueue(name + ".a.in"), "m");
        send(session, new ActiveMQQueue(name + ".a.b.in"), "n");
        send(session, new ActiveMQQueue(name + ".b.in"), "o");
        assertEquals(List.of(".a.in m", ".b.in o"), seen(words, name, 2));
        assertSilent(words);
    }

    @Test
    @DisplayName("a selector holds in every queue")
    void selector() throws Exception {
        String name = unique("selector");
        Session session = autoAcknowledge(connect());
        MessageConsumer odd = session.createConsumer(new ActiveMQQueue(name + ".>"), "n > 1");
        for (String each : List.of(".x", ".y")) {
            MessageProducer producer = session.createProducer(new ActiveMQQueue(name + each));
            for (int number = 0; number < 4; number++) {
                Message message = session.createTextMessage("m" + number);
                message.setIntProperty("n", number);
                producer.send(message);
            }
        }
        List<String> seen = seen(odd, name, 4);
        assertEquals(List.of(".x m2", ".x m3"), of(".x", seen));
        assertEquals(List.of(".y m2", ".y m3"), of(".y", seen));
        assertSilent(odd);
    }

    @Test
    @PostroadOnly("ActiveMQ may hand over one more than the prefetch")
    @DisplayName("the prefetch is over all queues")
    void prefetchIsOverAll() throws Exception {
        String name = unique("prefetch");
        Session session = autoAcknowledge(connect());
        send(session, new ActiveMQQueue(name + ".x"), numbered("m", 3));
        send(session, new ActiveMQQueue(name + ".y"), numbered("n", 3));
        Session client = connect("jms.prefetchPolicy.queuePrefetch=2").createSession(false, Session.CLIENT_ACKNOWLEDGE);
        client.createConsumer(new ActiveMQQueue(name + ".>"));
        TreeSet<String> left = new TreeSet<>();
        for (String each : List.of(".x", ".y")) {
            MessageConsumer consumer = session.createConsumer(new ActiveMQQueue(name + each));
            for (Message message; (message = consumer.receive(SILENCE_MS)) != null; ) {
                left.add(text(message));
            }
            consumer.close();
        }
        assertEquals(4, left.size(), () -> "two of six are with the consumer of the pattern: " + left);
    }

    @Test
    @DisplayName("without prefetch each message is asked for")
    void withoutPrefetch() throws Exception {
        String name = unique("pull");
        Session session = autoAcknowledge(connect("jms.prefetchPolicy.queuePrefetch=0"));
        MessageConsumer consumer = session.createConsumer(new ActiveMQQueue(name + ".>"));
        assertSilent(consumer);
        send(session, new ActiveMQQueue(name + ".x"), "m", "n");
        send(session, new ActiveMQQueue(name + ".y"), "o");
        List<String> seen = seen(consumer, name, 3);
        assertEquals(List.of(".x m", ".x n"), of(".x", seen));
        assertEquals(List.of(".y o"), of(".y", seen));
        assertEquals(null, consumer.receiveNoWait());
    }

    @Test
    @DisplayName("a transaction over several queues of a pattern is rolled back and committed as one")
    void transactions() throws Exception {
        String name = unique("transacted");
        Session sender = autoAcknowledge(connect());
        send(sender, new ActiveMQQueue(name + ".x"), "m", "n");
        send(sender, new ActiveMQQueue(name + ".y"), "o");
        Session session = transacted(connect());
        MessageConsumer consumer = session.createConsumer(new ActiveMQQueue(name + ".>"));
        assertEquals(3, deliveries(consumer, 3).size());
        session.rollback();
        List<String> again = new ArrayList<>(deliveries(consumer, 3));
        Collections.sort(again);
        assertEquals(List.of("m 2*", "n 2*", "o 2*"), again);
        session.commit();
        consumer.close();
        assertEmpty(new ActiveMQQueue(name + ".x"));
        assertEmpty(new ActiveMQQueue(name + ".y"));
    }

    @Test
    @DisplayName("one message of many is acknowledged by itself, and the others come again")
    void individualAcknowledge() throws Exception {
        String name = unique("individual");
        Session sender = autoAcknowledge(connect());
        send(sender, new ActiveMQQueue(name + ".x"), "m");
        send(sender, new ActiveMQQueue(name + ".y"), "n");
        Connection connection = connect();
        Session session = connection.createSession(false, ActiveMQSession.INDIVIDUAL_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(new ActiveMQQueue(name + ".>"));
        Message first = receive(consumer);
        Message second = receive(consumer);
        (text(first).equals("n") ? first : second).acknowledge();
        connection.close();
        MessageConsumer next = sender.createConsumer(new ActiveMQQueue(name + ".>"));
        assertEquals(List.of("m"), texts(next, 1));
        assertSilent(next);
    }

    @Test
    @DisplayName("two consumers of a pattern and one of a queue share what comes, each message once")
    void competition() throws Exception {
        String name = unique("competition");
        ActiveMQConnection connection = connect("jms.prefetchPolicy.queuePrefetch=5");
        List<String> got = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch all = new CountDownLatch(300);
        for (Destination source : List.of(
                new ActiveMQQueue(name + ".>"), new ActiveMQQueue(name + ".*"), new ActiveMQQueue(name + ".x"))) {
            autoAcknowledge(connection).createConsumer(source).setMessageListener(message -> {
                try {
                    got.add(queueName(message).substring(name.length()) + text(message));
                } catch (Exception wrong) {
                    got.add(wrong.toString());
                }
                all.countDown();
            });
        }
        Session session = autoAcknowledge(connect("jms.useAsyncSend=true"));
        for (String each : List.of(".x", ".y", ".z")) {
            send(session, new ActiveMQQueue(name + each), numbered("m", 100));
        }
        assertEquals(true, all.await(PATIENCE_MS, TimeUnit.MILLISECONDS), () -> "got " + got.size());
        assertEquals(300, new TreeSet<>(got).size());
        assertEquals(300, got.size());
    }

    @Test
    @PostroadOnly("ActiveMQ shows one queue of the pattern to a browser, or none")
    @DisplayName("a browser sees every queue of the pattern")
    void browser() throws Exception {
        String name = unique("browser");
        Session session = autoAcknowledge(connect());
        send(session, new ActiveMQQueue(name + ".x"), "m", "n");
        send(session, new ActiveMQQueue(name + ".y"), "o");
        QueueBrowser browser = session.createBrowser(new ActiveMQQueue(name + ".>"));
        List<String> seen = new ArrayList<>();
        for (var messages = browser.getEnumeration(); messages.hasMoreElements(); ) {
            seen.add(text((Message) messages.nextElement()));
        }
        assertEquals(List.of("m", "n", "o"), seen);
        browser.close();
        assertFalse(session.createBrowser(new ActiveMQQueue(name + ".none.>")).getEnumeration().hasMoreElements());
    }
}

package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;

import jakarta.jms.Connection;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.util.List;
import java.util.concurrent.Future;
import org.apache.activemq.command.ActiveMQQueue;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The client's failover transport sends again what was not answered; the broker takes it in once. */
@Timeout(60)
@DisplayName("failover: a message sent again is taken in once")
class ExactlyOnceTest extends JmsTest {
    private static final String FAST = "?initialReconnectDelay=10&maxReconnectDelay=100&useExponentialBackOff=false";

    private static Proxy proxyTo(String url) throws Exception {
        String[] address = url.replace("tcp://", "").split(":");
        return new Proxy(address[0], Integer.parseInt(address[1]));
    }

    private Connection through(Proxy proxy) throws Exception {
        Connection connection = unstarted(factoryFor("failover:(tcp://127.0.0.1:" + proxy.port() + ")" + FAST));
        connection.start();
        return connection;
    }

    /** Waits until the queue holds this many messages, as a browser on another connection sees it. */
    private static void awaitDepth(Session session, ActiveMQQueue queue, int depth) throws Exception {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (true) {
            var browser = session.createBrowser(queue);
            int seen = java.util.Collections.list(browser.getEnumeration()).size();
            browser.close();
            if (seen >= depth || System.currentTimeMillis() > end) {
                assertEquals(depth, seen);
                return;
            }
            Thread.sleep(5);
        }
    }

    @Test
    @DisplayName("the connection is cut after the broker took the message and before the client read the answer")
    void cutBeforeTheAnswer() throws Exception {
        ActiveMQQueue queue = queue("cut");
        Session watcher = autoAcknowledge(connect());
        try (Proxy proxy = proxyTo(SharedBroker.url()); Clients clients = new Clients()) {
            Session session = autoAcknowledge(through(proxy));
            MessageProducer producer = session.createProducer(queue);
            for (int number = 0; number < 5; number++) {
                int now = number;
                proxy.holdAnswers();
                Future<Void> sending = clients.run(() -> {
                    producer.send(session.createTextMessage("m" + now));
                    return null;
                });
                awaitDepth(watcher, queue, number + 1);
                proxy.cut();
                sending.get();
            }
            producer.send(session.createTextMessage("last"));
        }
        MessageConsumer consumer = watcher.createConsumer(queue);
        assertEquals(List.of("m0", "m1", "m2", "m3", "m4", "last"), texts(consumer, 6));
        assertSilent(consumer);
    }

    @Test
    @NeedsOwnBroker
    @DisplayName("a broker that remembers no producer (limits.audited_producers = 0) takes it in again")
    void nobodyRemembered() throws Exception {
        try (Broker broker = Broker.launch("forgets", "[limits]\naudited_producers = 0\n");
                Proxy proxy = proxyTo(broker.url()); Clients clients = new Clients()) {
            ActiveMQQueue queue = queue("again");
            Session watcher = sessionAt(broker);
            Session session = autoAcknowledge(through(proxy));
            MessageProducer producer = session.createProducer(queue);
            proxy.holdAnswers();
            Future<Void> sending = clients.run(() -> {
                producer.send(session.createTextMessage("m"));
                return null;
            });
            awaitDepth(watcher, queue, 1);
            proxy.cut();
            sending.get();
            MessageConsumer consumer = watcher.createConsumer(queue);
            assertEquals(List.of("m", "m"), texts(consumer, 2));
            assertSilent(consumer);
        }
    }

    @ParameterizedTest(name = "consumed: {0}")
    @ValueSource(booleans = {false, true})
    @NeedsOwnBroker
    @DisplayName("the broker is killed as well, after it took the message")
    void brokerKilled(boolean consumed) throws Exception {
        try (Broker broker = Broker.launch("once"); Proxy proxy = proxyTo(broker.url());
                Clients clients = new Clients()) {
            ActiveMQQueue queue = queue("killed");
            Session session = autoAcknowledge(through(proxy));
            MessageProducer producer = session.createProducer(queue);
            producer.send(session.createTextMessage("first"));
            proxy.holdAnswers();
            Future<Void> sending = clients.run(() -> {
                producer.send(session.createTextMessage("second"));
                return null;
            });
            Connection direct = unstarted(factoryFor(broker.url()));
            direct.start();
            Session watcher = autoAcknowledge(direct);
            awaitDepth(watcher, queue, 2);
            if (consumed) {
                Session taking = transacted(direct);
                assertEquals(List.of("first", "second"), texts(taking.createConsumer(queue), 2));
                taking.commit();
                direct.close();
            }
            broker.kill();
            broker.start();
            proxy.cut();
            sending.get();
            producer.send(session.createTextMessage("third"));
            Connection next = unstarted(factoryFor(broker.url()));
            next.start();
            MessageConsumer rest = autoAcknowledge(next).createConsumer(queue);
            List<String> want = consumed ? List.of("third") : List.of("first", "second", "third");
            assertEquals(want, texts(rest, want.size()));
            assertSilent(rest);
        }
    }
}

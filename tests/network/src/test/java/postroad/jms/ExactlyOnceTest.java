package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.InputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Random;

import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;

import org.apache.activemq.ActiveMQConnectionFactory;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** A link between two Postroads neither loses nor doubles a message, whatever breaks. */
@Tag("postroad")
class ExactlyOnceTest {
    private static final int ROUNDS = 20;
    private static final int PER_ROUND = 150;

    private static String bridge(String url) {
        return "[[bridge]]\nname = 'east'\nto = ['" + url + "']\nstatic = ['queue://out']\nretry_ms = 20\nretry_max_ms = 50\n";
    }

    /** Sends the messages of one round over a connection that outlives the broker. */
    private static Thread sending(String url, int round, Exception[] failed) {
        Thread thread = new Thread(() -> {
            String failover = "failover:(" + url + ")?initialReconnectDelay=20&useExponentialBackOff=false";
            try (Connection connection = new ActiveMQConnectionFactory(failover).createConnection()) {
                connection.start();
                Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                MessageProducer producer = session.createProducer(session.createQueue("out"));
                producer.setDeliveryMode(DeliveryMode.PERSISTENT);
                for (int number = round * PER_ROUND; number < (round + 1) * PER_ROUND; number++) {
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

    /** Each message is there once. */
    private static void expectEachOnce(Broker broker, int messages) throws Exception {
        try (Connection connection = new ActiveMQConnectionFactory(broker.url()).createConnection()) {
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(session.createQueue("out"));
            int[] times = new int[messages];
            for (int received = 0; received < messages; received++) {
                Message message = consumer.receive(NetworkTest.PATIENCE_MS);
                assertNotNull(message, received + " of " + messages + " have come");
                times[message.getIntProperty("number")]++;
            }
            NetworkTest.expectNothing(consumer);
            for (int number = 0; number < messages; number++) {
                assertEquals(1, times[number], "message " + number);
            }
        }
    }

    private static long waiting(Broker broker) throws Exception {
        String queues = broker.command("ctl", "queues", "--filter", "out", "--json");
        int at = queues.indexOf("\"messages\":");
        return at < 0 ? 0 : Long.parseLong(queues.substring(at + 11).split("[^0-9]", 2)[0]);
    }

    @Test
    void killedBrokersLoseAndDoubleNothing() throws Exception {
        Random random = new Random(42);
        try (Broker east = Broker.launch("once-east"); Broker west = Broker.launch("once-west", bridge(east.url()))) {
            for (int round = 0; round < ROUNDS; round++) {
                Exception[] failed = new Exception[1];
                Thread sending = sending(west.url(), round, failed);
                // Somewhere among the messages of the round.
                Thread.sleep(random.nextInt(300));
                Broker victim = round % 2 == 0 ? east : west;
                victim.kill();
                victim.start();
                sending.join(NetworkTest.PATIENCE_MS);
                assertEquals(null, failed[0]);
            }
            NetworkTest.eventually("all is forwarded", () -> waiting(west) == 0);
            expectEachOnce(east, ROUNDS * PER_ROUND);
        }
    }

    @Test
    void cutConnectionsLoseAndDoubleNothing() throws Exception {
        try (Broker east = Broker.launch("cut-east");
                Wire wire = new Wire(URI.create(east.url()).getPort());
                Broker west = Broker.launch("cut-west", bridge("tcp://127.0.0.1:" + wire.port()))) {
            wire.cutAfter(new Random(7), 20_000);
            for (int round = 0; round < ROUNDS; round++) {
                Exception[] failed = new Exception[1];
                sending(west.url(), round, failed).join(NetworkTest.PATIENCE_MS);
                assertEquals(null, failed[0]);
            }
            NetworkTest.eventually("it was cut often", () -> wire.cuts() >= ROUNDS);
            wire.cutNoMore();
            NetworkTest.eventually("all is forwarded", () -> waiting(west) == 0);
            expectEachOnce(east, ROUNDS * PER_ROUND);
            assertTrue(duplicates(east) > 0, "some came twice over the link");
        }
    }

    /** The peer has messages that it could not confirm, and a consumer of the killed broker is quicker than the link. */
    @Test
    void consumersOfAKilledBrokerGetNothingThatThePeerMayHave() throws Exception {
        int messages = 50;
        try (Broker east = Broker.launch("lent-east");
                Wire wire = new Wire(URI.create(east.url()).getPort());
                Broker west = Broker.launch("lent-west", bridge("tcp://127.0.0.1:" + wire.port()))) {
            NetworkTest.eventually("it is linked", () -> west.command("ctl", "bridges", "--json").contains("\"state\":\"linked\""));
            wire.holdAnswers(true);
            try (Connection connection = new ActiveMQConnectionFactory(west.url()).createConnection()) {
                Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                NetworkTest.send(session, session.createQueue("out"), 0, messages);
            }
            NetworkTest.eventually("the peer has them", () -> waiting(east) == messages);
            west.kill();
            west.start();
            try (Connection connection = new ActiveMQConnectionFactory(west.url()).createConnection()) {
                connection.start();
                Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                MessageConsumer consumer = session.createConsumer(session.createQueue("out"));
                NetworkTest.expectNothing(consumer);
                // Others are for whoever comes first.
                NetworkTest.send(session, session.createQueue("out"), messages, messages + 1);
                NetworkTest.expect(consumer, messages, messages + 1);
                wire.holdAnswers(false);
                NetworkTest.eventually("the link has them confirmed", () -> waiting(west) == 0);
                NetworkTest.expectNothing(consumer);
            }
            expectEachOnce(east, messages);
            assertEquals(messages, duplicates(east));
        }
    }

    private static long duplicates(Broker broker) throws Exception {
        int offset = URI.create(broker.url()).getPort() - 61616;
        try (InputStream metrics = URI.create("http://127.0.0.1:" + (8161 + offset) + "/metrics").toURL().openStream()) {
            return new String(metrics.readAllBytes(), StandardCharsets.UTF_8).lines()
                    .filter(line -> line.startsWith("postroad_duplicates_total{"))
                    .mapToLong(line -> Long.parseLong(line.substring(line.lastIndexOf(' ') + 1)))
                    .sum();
        }
    }
}

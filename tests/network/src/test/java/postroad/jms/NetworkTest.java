package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.Callable;

import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;

import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.network.NetworkConnector;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

/** A Postroad and a Classic, and a client of each. */
abstract class NetworkTest {
    static final int PATIENCE_MS = 20_000;

    Broker postroad;
    Classic classic;
    Connection here;
    Connection there;
    Session atPostroad;
    Session atClassic;

    /** What the Postroad is configured with. */
    String configuration() throws Exception {
        return "";
    }

    @BeforeEach
    void start() throws Exception {
        postroad = Broker.launch(getClass().getSimpleName(), configuration());
        classic = new Classic("depot");
        here = connect(postroad.url());
        there = connect(classic.url());
        atPostroad = here.createSession(false, Session.AUTO_ACKNOWLEDGE);
        atClassic = there.createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    @AfterEach
    void stop() throws Exception {
        here.close();
        there.close();
        classic.close();
        postroad.close();
    }

    Connection connect(String url) throws Exception {
        Connection connection = new ActiveMQConnectionFactory(url).createConnection();
        connection.start();
        return connection;
    }

    /** Opens a bridge from Classic to Postroad and waits until it is there. */
    NetworkConnector bridge(boolean duplex) throws Exception {
        NetworkConnector connector = classic.bridgeTo(postroad.url(), options -> options.setDuplex(duplex));
        eventually("the bridge is established", () -> Classic.isBridged(connector));
        return connector;
    }

    static void send(Session session, Destination destination, int from, int to) throws Exception {
        MessageProducer producer = session.createProducer(destination);
        for (int number = from; number < to; number++) {
            TextMessage message = session.createTextMessage("message " + number);
            message.setIntProperty("number", number);
            producer.send(message);
        }
        producer.close();
    }

    /** Expects these messages in this order, and returns the last one. */
    static TextMessage expect(MessageConsumer consumer, int from, int to) throws Exception {
        TextMessage message = null;
        for (int number = from; number < to; number++) {
            message = (TextMessage) consumer.receive(PATIENCE_MS);
            assertNotNull(message, "message " + number);
            assertEquals("message " + number, message.getText());
            assertEquals(number, message.getIntProperty("number"));
        }
        return message;
    }

    static void expectNothing(MessageConsumer consumer) throws Exception {
        assertNull(consumer.receive(300));
    }

    static void eventually(String what, Callable<Boolean> condition) throws Exception {
        long until = System.nanoTime() + PATIENCE_MS * 1_000_000L;
        while (!condition.call()) {
            assertTrue(System.nanoTime() < until, what);
            Thread.sleep(20);
        }
    }
}

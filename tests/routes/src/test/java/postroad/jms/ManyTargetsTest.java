package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.BitSet;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

@DisplayName("A route to a thousand targets")
class ManyTargetsTest {
    private static final int TARGETS = 1000;
    private static final int MESSAGES = 20;
    private static final int ALL = TARGETS;

    private static String route(int targets) {
        StringBuilder route = new StringBuilder("[[route]]\nname = 'wide'\nfrom = 'queue://wide'\nto = [\n");
        for (int target = 0; target < targets; target++) {
            route.append("{ destination = 'queue://wide.").append(target).append("', selector = 'n = ").append(target).append(" OR n = ")
                    .append(ALL).append("', set = { at = ").append(target).append(" } },\n");
        }
        return route.append("]\n").toString();
    }

    private static void send(Session session, int n) throws Exception {
        MessageProducer producer = session.createProducer(session.createQueue("wide"));
        TextMessage message = session.createTextMessage("for " + n);
        message.setIntProperty("n", n);
        producer.send(message);
        producer.close();
    }

    @Test
    @DisplayName("some messages reach one target each, and one message reaches all of them, once, after kill -9 too")
    void targets() throws Exception {
        try (Broker broker = Broker.launch("ManyTargetsTest", route(TARGETS))) {
            try (Connection connection = new ActiveMQConnectionFactory(broker.url()).createConnection()) {
                Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                for (int message = 0; message < MESSAGES; message++) {
                    send(session, message * TARGETS / MESSAGES);
                }
                send(session, ALL);
            }
            broker.kill();
            broker.start();
            try (Connection connection = new ActiveMQConnectionFactory(broker.url()).createConnection()) {
                connection.start();
                Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                MessageConsumer consumer = session.createConsumer(session.createQueue("wide.>"));
                BitSet ofAll = new BitSet(TARGETS);
                int alone = 0;
                for (int received = 0; received < TARGETS + MESSAGES; received++) {
                    Message message = consumer.receive(RoutesTest.PATIENCE_MS);
                    assertNotNull(message, received + " have come");
                    int at = message.getIntProperty("at");
                    if (message.getIntProperty("n") == ALL) {
                        assertTrue(!ofAll.get(at), "twice at " + at);
                        ofAll.set(at);
                    } else {
                        assertEquals(at, message.getIntProperty("n"));
                        alone++;
                    }
                }
                assertEquals(TARGETS, ofAll.cardinality());
                assertEquals(MESSAGES, alone);
                assertEquals(null, consumer.receive(RoutesTest.SILENCE_MS));
            }
        }
    }

    @Test
    @DisplayName("one target more is refused with the limit")
    void limit() throws Exception {
        try (Broker broker = Broker.launch("ManyTargetsTest-limit", route(1))) {
            broker.configure(route(TARGETS + 1));
            broker.reload();
            for (long until = System.nanoTime() + RoutesTest.PATIENCE_MS * 1_000_000L; !broker.log().contains("1001"); ) {
                assertTrue(System.nanoTime() < until, broker.log());
                Thread.sleep(20);
            }
            assertTrue(broker.log().contains("reloading the configuration failed"), broker.log());
        }
    }
}

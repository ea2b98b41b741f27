package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.Socket;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.command.ActiveMQQueue;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** OpenWire: every version and encoding that the client can negotiate, and limits on frames and idleness. */
@DisplayName("OpenWire: versions, encodings, limits")
class WireFormatsTest extends JmsTest {
    private static final int VERSION_MAX = 12;
    /** Small, but above the 100 places that the client keeps free for one command. */
    private static final int CACHE_SIZE = 120;

    private static String format(int version, boolean tight, boolean cached) {
        return "wireFormat.version=" + version + "&wireFormat.tightEncodingEnabled=" + tight
                + "&wireFormat.cacheEnabled=" + cached;
    }

    static List<String> formats() {
        List<String> formats = new ArrayList<>();
        for (int version = 1; version <= VERSION_MAX; version++) {
            formats.add(format(version, true, true));
            formats.add(format(version, false, false));
        }
        formats.add(format(VERSION_MAX, true, false));
        formats.add(format(VERSION_MAX, false, true));
        formats.add(format(1, true, false));
        formats.add(format(1, false, true));
        formats.add("wireFormat.stackTraceEnabled=false&wireFormat.tcpNoDelayEnabled=false");
        formats.add("wireFormat.sizePrefixDisabled=false&wireFormat.cacheSize=256");
        return formats;
    }

    @ParameterizedTest(name = "{0}")
    @MethodSource("formats")
    @DisplayName("a client of each format can do everything: send, receive, reply, commit, browse, subscribe")
    void everyFormatWorks(String format) throws Exception {
        ActiveMQConnection connection = unstarted(factory(format));
        connection.setClientID(unique("client"));
        connection.start();
        Session session = autoAcknowledge(connection);
        exchange(session, session);

        ActiveMQQueue queue = queue("format");
        Session transacted = transacted(connection);
        send(transacted, queue, numbered("m", 3));
        transacted.commit();
        assertTrue(session.createBrowser(queue).getEnumeration().hasMoreElements());
        MessageConsumer consumer = transacted.createConsumer(queue);
        assertEquals(List.of("m0 1", "m1 1", "m2 1"), deliveries(consumer, 3));
        transacted.rollback();
        transacted.close();
        assertEquals(List.of("m0", "m1", "m2"), texts(session.createConsumer(queue), 3));

        MessageConsumer temporary = session.createConsumer(session.createTemporaryQueue());
        temporary.close();
        var topic = topic("format");
        MessageConsumer durable = session.createDurableSubscriber(topic, "subscription");
        send(session, topic, "d");
        assertEquals("d", text(receive(durable)));
        durable.close();
        session.unsubscribe("subscription");
    }

    /** Sends one message of several kinds from one session to the other and compares what arrives. */
    private void exchange(Session from, Session to) throws JMSException {
        ActiveMQQueue queue = queue("exchange");
        MessageConsumer consumer = to.createConsumer(queue);
        var producer = from.createProducer(queue);
        // Repeated sends use the marshalling cache, and more of them than it has places would turn it over.
        for (int round = 0; round < 5; round++) {
            Message text = from.createTextMessage("text " + round);
            text.setJMSReplyTo(queue("reply" + round));
            text.setJMSCorrelationID("correlation " + round);
            text.setStringProperty("JMSXGroupID", "group " + round);
            text.setLongProperty("long", Long.MIN_VALUE + round);
            producer.send(text);
            BytesMessage bytes = from.createBytesMessage();
            bytes.writeBytes(new byte[] {(byte) round, -1, 0, 1});
            producer.send(bytes);
            MapMessage map = from.createMapMessage();
            map.setDouble("double", round / 3.0);
            producer.send(map);

            Message gotText = receive(consumer);
            assertEquals("text " + round, text(gotText));
            assertEquals(text.getJMSReplyTo(), gotText.getJMSReplyTo());
            assertEquals("correlation " + round, gotText.getJMSCorrelationID());
            assertEquals("group " + round, gotText.getStringProperty("JMSXGroupID"));
            assertEquals(Long.MIN_VALUE + round, gotText.getLongProperty("long"));
            assertEquals(text.getJMSMessageID(), gotText.getJMSMessageID());
            assertEquals(text.getJMSTimestamp(), gotText.getJMSTimestamp());
            BytesMessage gotBytes = (BytesMessage) receive(consumer);
            byte[] content = new byte[4];
            assertEquals(4, gotBytes.readBytes(content));
            assertArrayEquals(new byte[] {(byte) round, -1, 0, 1}, content);
            assertEquals(round / 3.0, ((MapMessage) receive(consumer)).getDouble("double"));
        }
        consumer.close();
    }

    static List<String> mixes() {
        return List.of(format(12, true, true), format(12, false, false), format(12, true, false),
                format(11, false, true), format(10, true, true), format(9, false, false), format(6, true, true),
                format(3, false, true), format(1, true, true), format(1, false, false));
    }

    @ParameterizedTest(name = "{0}")
    @MethodSource("mixes")
    @DisplayName("messages pass between clients of different formats, both ways")
    void formatsMix(String format) throws Exception {
        Session session = autoAcknowledge(connect(format));
        for (String otherFormat : mixes().subList(0, 6)) {
            Connection connection = connect(otherFormat);
            Session other = autoAcknowledge(connection);
            exchange(session, other);
            exchange(other, session);
            connection.close();
        }
    }

    @Test
    @DisplayName("more destinations than the marshalling cache has places")
    void cacheTurnsOver() throws Exception {
        Session session = autoAcknowledge(connect("wireFormat.cacheSize=" + CACHE_SIZE));
        var producer = session.createProducer(null);
        List<ActiveMQQueue> queues = new ArrayList<>();
        for (int number = 0; number < CACHE_SIZE; number++) {
            ActiveMQQueue queue = queue("cache" + number);
            queues.add(queue);
            producer.send(queue, session.createTextMessage(queue.getQueueName()));
        }
        for (ActiveMQQueue queue : queues) {
            MessageConsumer consumer = session.createConsumer(queue);
            Message got = receive(consumer);
            assertEquals(queue.getQueueName(), text(got));
            assertEquals(queue, got.getJMSDestination());
            consumer.close();
        }
    }

    @Test
    @DisplayName("maxFrameSize exceeded: a JMSException at the producer, and others are served on")
    void frameTooLargeForTheProducer() throws Exception {
        ActiveMQQueue queue = queue("frame");
        Session other = autoAcknowledge(connect());
        MessageConsumer consumer = other.createConsumer(queue);
        Session session = autoAcknowledge(connect("wireFormat.maxFrameSize=65536"));
        send(session, queue, "fits");
        assertThrows(JMSException.class, () -> send(session, queue, "x".repeat(200_000)));
        send(other, queue, "others");
        assertEquals(List.of("fits", "others"), texts(consumer, 2));
        assertSilent(consumer);
    }

    @ParameterizedTest(name = "{0}")
    @ValueSource(strings = {"a frame of 2 GiB", "a negative frame size", "HTTP without a path"})
    @DisplayName("bad bytes end that connection only")
    void badBytesEndThatConnectionOnly(String kind) throws Exception {
        sendBadBytes(kind);
    }

    @ParameterizedTest(name = "{0}")
    @ValueSource(strings = {"an unknown type", "a short frame"})
    @PostroadOnly("others may leave the connection open and silent")
    @DisplayName("a frame that cannot be read ends that connection only")
    void unreadableFrameEndsThatConnectionOnly(String kind) throws Exception {
        sendBadBytes(kind);
    }

    private void sendBadBytes(String kind) throws Exception {
        ActiveMQQueue queue = queue("bad");
        Session session = autoAcknowledge(connect());
        MessageConsumer consumer = session.createConsumer(queue);
        URI uri = URI.create(SharedBroker.url());
        try (Socket socket = new Socket(uri.getHost(), uri.getPort())) {
            socket.setSoTimeout((int) PATIENCE_MS);
            DataOutputStream out = new DataOutputStream(socket.getOutputStream());
            switch (kind) {
                case "a frame of 2 GiB" -> {
                    out.writeInt(Integer.MAX_VALUE);
                    out.writeByte(1);
                }
                case "a negative frame size" -> {
                    out.writeInt(-5);
                    out.writeByte(1);
                }
                case "HTTP without a path" -> out.write("GET \r\n\r\n".getBytes(java.nio.charset.StandardCharsets.US_ASCII));
                case "a short frame" -> {
                    // A WireFormatInfo (type 1) that ends within its magic.
                    out.writeInt(3);
                    out.writeByte(1);
                    out.writeBytes("Ac");
                }
                default -> {
                    out.writeInt(8);
                    out.writeByte(121);
                    out.write(new byte[7]);
                }
            }
            out.flush();
            assertTrue(hangsUp(socket), "the connection goes on after " + kind);
        }
        send(session, queue, "others are served");
        assertEquals("others are served", text(receive(consumer)));
    }

    /** The broker may greet first; after that it must hang up. */
    private static boolean hangsUp(Socket socket) throws IOException {
        DataInputStream in = new DataInputStream(socket.getInputStream());
        byte[] buffer = new byte[4096];
        long end = System.currentTimeMillis() + PATIENCE_MS;
        try {
            while (in.read(buffer) >= 0) {
                if (System.currentTimeMillis() > end) {
                    return false;
                }
            }
        } catch (java.net.SocketTimeoutException stillOpen) {
            return false;
        } catch (IOException reset) {
            return true;
        }
        return true;
    }

    @Test
    @DisplayName("an idle connection lives on thanks to keep-alives")
    void idleConnectionsSurvive() throws Exception {
        List<Exception> errors = new java.util.concurrent.CopyOnWriteArrayList<>();
        List<Session> idle = new ArrayList<>();
        for (String option : List.of("wireFormat.maxInactivityDuration=2000",
                "wireFormat.maxInactivityDuration=2000&wireFormat.maxInactivityDurationInitalDelay=500",
                "wireFormat.maxInactivityDuration=0", "")) {
            ActiveMQConnection connection = unstarted(factory(option));
            connection.setExceptionListener(errors::add);
            connection.start();
            idle.add(autoAcknowledge(connection));
        }
        Thread.sleep(6000);
        assertEquals(List.of(), errors);
        for (Session session : idle) {
            ActiveMQQueue queue = queue("idle");
            send(session, queue, "still here");
            assertEquals("still here", text(receive(session.createConsumer(queue))));
        }
    }

    @Test
    @DisplayName("a client that falls silent is dropped after its inactivity limit, and its messages go on")
    void silentClientIsDropped() throws Exception {
        ActiveMQQueue queue = queue("silent");
        URI broker = URI.create(SharedBroker.url());
        try (Proxy proxy = new Proxy(broker.getHost(), broker.getPort())) {
            ActiveMQConnection silent = unstarted(factoryFor("tcp://127.0.0.1:" + proxy.port(),
                    "wireFormat.maxInactivityDuration=1500", "wireFormat.maxInactivityDurationInitalDelay=500"));
            silent.start();
            Session session = silent.createSession(false, Session.CLIENT_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(queue);
            send(autoAcknowledge(connect()), queue, "m");
            assertEquals("m 1", delivery(receive(consumer)));
            proxy.freeze();
            MessageConsumer other = autoAcknowledge(connect()).createConsumer(queue);
            assertEquals("m 2*", delivery(receive(other)));
        }
    }
}

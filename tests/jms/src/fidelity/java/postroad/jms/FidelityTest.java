package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageEOFException;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.ConcurrentLinkedDeque;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Messages between a client of OpenWire and one of AMQP 1.0, both ways: docs/protocols/fidelity.md. */
@ExtendWith({SharedBroker.class, FailureReport.class})
class FidelityTest {
    private static final long PATIENCE_MS = 10_000;
    private static final byte[] SOME_BYTES = {0, -1, 127, 10, 13};
    private static final String SOME_TEXT = "gr\u00fcn \u20ac \ud83d\ude00 \0 end";

    private final ConcurrentLinkedDeque<Connection> connections = new ConcurrentLinkedDeque<>();

    private interface Maker {
        Message make(Session session) throws JMSException;
    }

    /** A message, and how it looks to whoever receives it. */
    private record Case(String name, Maker maker, String seen) {}

    @AfterEach
    void closeConnections() {
        for (Connection connection : connections) {
            try {
                connection.close();
            } catch (JMSException alreadyBroken) {
                // A failed test may leave it like this.
            }
        }
        connections.clear();
    }

    private Connection openWire(String... options) throws JMSException {
        return kept(startedOpenWire(options));
    }

    private Connection amqp() throws JMSException {
        return kept(startedAmqp());
    }

    private Connection kept(Connection connection) {
        connections.add(connection);
        return connection;
    }

    /** A connection of activemq-client, whose closing is the caller's. */
    static Connection startedOpenWire(String... options) throws JMSException {
        String bounds = "?jms.connectResponseTimeout=15000&jms.closeTimeout=5000";
        ActiveMQConnectionFactory factory =
                new ActiveMQConnectionFactory(SharedBroker.url() + String.join("&", bounds, String.join("&", options)));
        factory.setTrustAllPackages(true);
        return started(factory.createConnection());
    }

    /** A connection of qpid-jms, likewise. */
    static Connection startedAmqp(String... options) throws JMSException {
        String bounds = "?jms.requestTimeout=15000&jms.closeTimeout=5000&amqp.idleTimeout=60000"
                + "&jms.deserializationPolicy.allowList=*";
        return started(new JmsConnectionFactory(SharedBroker.amqpUrl() + bounds + String.join("", options)).createConnection());
    }

    private static Connection started(Connection connection) throws JMSException {
        connection.start();
        return connection;
    }

    static Session session(Connection connection) throws JMSException {
        return connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    static String unique() {
        return "test.fidelity." + UUID.randomUUID();
    }

    static Message receive(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(PATIENCE_MS);
        assertNotNull(message, "no message within " + PATIENCE_MS + " ms");
        return message;
    }

    private static Message cross(Connection from, Connection to, Maker maker) throws JMSException {
        String name = unique();
        Session sends = session(from);
        Session receives = session(to);
        sends.createProducer(sends.createQueue(name)).send(maker.make(sends));
        Message message = receive(receives.createConsumer(receives.createQueue(name)));
        sends.close();
        return message;
    }

    private static void fill(MapMessage map) throws JMSException {
        map.setBoolean("boolean", true);
        map.setByte("byte", Byte.MIN_VALUE);
        map.setShort("short", Short.MIN_VALUE);
        map.setChar("char", '\u20ac');
        map.setInt("int", Integer.MIN_VALUE);
        map.setLong("long", Long.MIN_VALUE);
        map.setFloat("float", 1.5f);
        map.setDouble("double", -0.1);
        map.setString("String", "gr\u00fcn");
        map.setBytes("bytes", SOME_BYTES);
        map.setObject("null", null);
    }

    private static void fill(StreamMessage stream) throws JMSException {
        stream.writeBoolean(true);
        stream.writeByte(Byte.MIN_VALUE);
        stream.writeShort(Short.MIN_VALUE);
        stream.writeChar('\u20ac');
        stream.writeInt(Integer.MIN_VALUE);
        stream.writeLong(Long.MIN_VALUE);
        stream.writeFloat(1.5f);
        stream.writeDouble(-0.1);
        stream.writeString("gr\u00fcn");
        stream.writeBytes(SOME_BYTES);
        stream.writeObject(null);
    }

    private static final List<Case> BODIES = List.of(
            new Case("none", Session::createMessage, "message"),
            new Case("text", session -> session.createTextMessage(SOME_TEXT), "text " + SOME_TEXT),
            new Case("empty text", session -> session.createTextMessage(""), "text "),
            new Case("null text", Session::createTextMessage, "text null"),
            new Case("long text", session -> session.createTextMessage("\u20ac".repeat(100_000)),
                    "text " + "\u20ac".repeat(100_000)),
            new Case("bytes", session -> {
                BytesMessage message = session.createBytesMessage();
                message.writeBytes(SOME_BYTES);
                return message;
            }, "bytes 00ff7f0a0d"),
            new Case("no bytes", Session::createBytesMessage, "bytes "),
            new Case("map", session -> {
                MapMessage message = session.createMapMessage();
                fill(message);
                return message;
            }, "map {String=String gr\u00fcn, boolean=Boolean true, byte=Byte -128, bytes=byte[] 00ff7f0a0d, "
                    + "char=Character \u20ac, double=Double -0.1, float=Float 1.5, int=Integer -2147483648, "
                    + "long=Long -9223372036854775808, null=null, short=Short -32768}"),
            new Case("empty map", Session::createMapMessage, "map {}"),
            new Case("stream", session -> {
                StreamMessage message = session.createStreamMessage();
                fill(message);
                return message;
            }, "stream [Boolean true, Byte -128, Short -32768, Character \u20ac, Integer -2147483648, "
                    + "Long -9223372036854775808, Float 1.5, Double -0.1, String gr\u00fcn, byte[] 00ff7f0a0d, null]"),
            new Case("empty stream", Session::createStreamMessage, "stream []"),
            new Case("object", session -> session.createObjectMessage(new ArrayList<>(List.of("a", 1))),
                    "object ArrayList [a, 1]"),
            new Case("null object", session -> session.createObjectMessage((Serializable) null), "object null"));

    static String seen(Message message) throws JMSException {
        if (message instanceof TextMessage text) {
            return "text " + text.getText();
        } else if (message instanceof BytesMessage bytes) {
            byte[] body = new byte[(int) bytes.getBodyLength()];
            bytes.readBytes(body);
            return "bytes " + HexFormat.of().formatHex(body);
        } else if (message instanceof MapMessage map) {
            Map<String, String> values = new TreeMap<>();
            for (Object name : Collections.list(map.getMapNames())) {
                values.put((String) name, value(map.getObject((String) name)));
            }
            return "map " + values;
        } else if (message instanceof StreamMessage stream) {
            List<String> values = new ArrayList<>();
            try {
                while (true) {
                    values.add(value(stream.readObject()));
                }
            } catch (MessageEOFException end) {
                return "stream " + values;
            }
        } else if (message instanceof ObjectMessage object) {
            return "object " + value(object.getObject());
        }
        return "message";
    }

    static String value(Object value) {
        if (value instanceof byte[] bytes) {
            return "byte[] " + HexFormat.of().formatHex(bytes);
        }
        return value == null ? "null" : value.getClass().getSimpleName() + " " + value;
    }

    private static void crossAll(Connection from, Connection to) throws JMSException {
        List<String> wrong = new ArrayList<>();
        for (Case body : BODIES) {
            String got;
            try {
                got = seen(cross(from, to, body.maker));
            } catch (JMSException | RuntimeException | AssertionError failed) {
                got = failed.toString();
            }
            if (!body.seen.equals(got)) {
                wrong.add(body.name + ": " + got + " instead of " + body.seen);
            }
        }
        assertEquals(List.of(), wrong);
    }

    @Test
    @PostroadOnly("Classic does not say which kind of message it sends, and ends the link over bytes in a stream")
    void bodiesOfOpenWireReachAmqp() throws Exception {
        crossAll(openWire(), amqp());
    }

    @Test
    @PostroadOnly("Classic makes bytes of messages without body and of streams with bytes in them")
    void bodiesOfAmqpReachOpenWire() throws Exception {
        crossAll(amqp(), openWire());
    }

    /** Characters that Java's modified UTF-8 writes differently, some of which the pieces cut: their numbers of bytes are odd. */
    private static final String LARGE_TEXT = "\u20ac\ud83d\ude00\u00e9\0x".repeat(200_000);

    private static byte[] largeBytes() {
        byte[] bytes = new byte[3 << 20];
        new Random(7).nextBytes(bytes);
        return bytes;
    }

    private static void crossLarge(Connection from, Connection to) throws JMSException {
        Message text = cross(from, to, session -> session.createTextMessage(LARGE_TEXT));
        assertEquals(LARGE_TEXT, ((TextMessage) text).getText());
        byte[] sent = largeBytes();
        BytesMessage bytes = (BytesMessage) cross(from, to, session -> {
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(sent);
            return message;
        });
        byte[] got = new byte[(int) bytes.getBodyLength()];
        bytes.readBytes(got);
        assertArrayEquals(sent, got);
        Message object = cross(from, to, session -> session.createObjectMessage(sent));
        assertArrayEquals(sent, (byte[]) ((ObjectMessage) object).getObject());
        MapMessage map = (MapMessage) cross(from, to, session -> {
            MapMessage message = session.createMapMessage();
            message.setBytes("bytes", sent);
            return message;
        });
        assertArrayEquals(sent, map.getBytes("bytes"));
    }

    @Test
    @PostroadOnly("as bodiesOfOpenWireReachAmqp")
    void largeBodiesReachAmqp() throws Exception {
        crossLarge(openWire(), amqp());
        crossLarge(openWire("jms.useCompression=true"), amqp());
    }

    /** The broker finds out how long it will be, and says only then that there is nothing else. */
    @Test
    @PostroadOnly("as bodiesOfOpenWireReachAmqp")
    void largeBodiesReachAmqpClientsThatAskForOne() throws Exception {
        String name = unique();
        Session sends = session(openWire());
        MessageProducer producer = sends.createProducer(sends.createQueue(name));
        Session receives = session(kept(startedAmqp("&jms.prefetchPolicy.all=0")));
        MessageConsumer consumer = receives.createConsumer(receives.createQueue(name));
        for (int round = 0; round < 5; round++) {
            producer.send(sends.createTextMessage(LARGE_TEXT));
            Message got = round % 2 == 0 ? consumer.receiveNoWait() : receive(consumer);
            assertNotNull(got, "it was there when it was asked for");
            assertEquals(LARGE_TEXT, ((TextMessage) got).getText());
        }
    }

    @Test
    @PostroadOnly("as bodiesOfAmqpReachOpenWire")
    void largeBodiesReachOpenWire() throws Exception {
        crossLarge(amqp(), openWire());
        crossLarge(amqp(), openWire("wireFormat.tightEncodingEnabled=true&wireFormat.cacheEnabled=true"));
    }

    @Test
    @PostroadOnly("as bodiesOfOpenWireReachAmqp")
    void deflatedBodiesReachAmqp() throws Exception {
        crossAll(openWire("jms.useCompression=true"), amqp());
    }

    @Test
    @PostroadOnly("as bodiesOfAmqpReachOpenWire")
    void tightAndCachedClientsGetThemToo() throws Exception {
        crossAll(amqp(), openWire("wireFormat.tightEncodingEnabled=true&wireFormat.cacheEnabled=true"));
        crossAll(amqp(), openWire("wireFormat.version=9"));
    }

    @Test
    @PostroadOnly("Classic makes bytes of the encoded message")
    void typedObjectsOfAmqpReachOpenWire() throws Exception {
        UUID uuid = new UUID(1, 2);
        ArrayList<Object> nested = new ArrayList<>(List.of(1, new ArrayList<>(List.of(2))));
        for (Map.Entry<Serializable, String> typed : Map.<Serializable, String>of(
                "text", "text text",
                new ArrayList<>(List.of(1, uuid)), "stream [Integer 1, String " + uuid + "]",
                new TreeMap<>(Map.of("uuid", uuid)), "map {uuid=String " + uuid + "}",
                nested, "map {0=Integer 1, 1=ArrayList [2]}",
                new int[] {1, 2}, "stream [Integer 1, Integer 2]").entrySet()) {
            Message message = cross(amqp(), openWire(), session -> {
                ObjectMessage object = session.createObjectMessage();
                object.setBooleanProperty("JMS_AMQP_TYPED_ENCODING", true);
                object.setObject(typed.getKey());
                return object;
            });
            assertEquals(typed.getValue(), seen(message));
        }
    }

    private static Message withProperties(Session session) throws JMSException {
        Message message = session.createMessage();
        message.setBooleanProperty("boolean", true);
        message.setByteProperty("byte", Byte.MIN_VALUE);
        message.setShortProperty("short", Short.MIN_VALUE);
        message.setIntProperty("int", Integer.MIN_VALUE);
        message.setLongProperty("long", Long.MIN_VALUE);
        message.setFloatProperty("float", 1.5f);
        message.setDoubleProperty("double", -0.1);
        message.setStringProperty("String", "gr\u00fcn");
        message.setObjectProperty("null", null);
        return message;
    }

    @Test
    void propertiesOfEachTypeCrossBothWays() throws Exception {
        String want = "{String=String gr\u00fcn, boolean=Boolean true, byte=Byte -128, double=Double -0.1, "
                + "float=Float 1.5, int=Integer -2147483648, long=Long -9223372036854775808, null=null, "
                + "short=Short -32768}";
        for (boolean toAmqp : new boolean[] {true, false}) {
            Connection from = toAmqp ? openWire() : amqp();
            Message message = cross(from, toAmqp ? amqp() : openWire(), FidelityTest::withProperties);
            Map<String, String> properties = new TreeMap<>();
            for (Object name : Collections.list(message.getPropertyNames())) {
                if (!((String) name).startsWith("JMSX")) {
                    properties.put((String) name, value(message.getObjectProperty((String) name)));
                }
            }
            assertEquals(want, properties.toString(), toAmqp ? "to AMQP" : "to OpenWire");
        }
    }

    @Test
    void headersCrossBothWays() throws Exception {
        for (boolean toAmqp : new boolean[] {true, false}) {
            String way = toAmqp ? "to AMQP" : "to OpenWire";
            Session sends = session(toAmqp ? openWire() : amqp());
            Session receives = session(toAmqp ? amqp() : openWire());
            String name = unique();
            Message sent = sends.createTextMessage("headers");
            sent.setJMSCorrelationID("correlation");
            sent.setJMSType("type");
            sent.setJMSReplyTo(sends.createTopic(name + ".answers"));
            sent.setStringProperty("JMSXGroupID", "group");
            sent.setIntProperty("JMSXGroupSeq", 3);
            MessageProducer producer = sends.createProducer(sends.createQueue(name));
            producer.send(sent, DeliveryMode.NON_PERSISTENT, 7, 600_000);
            Message got = receive(receives.createConsumer(receives.createQueue(name)));
            assertEquals(
                    List.of(sent.getJMSMessageID(), "correlation", "type", "group", 3, 7, DeliveryMode.NON_PERSISTENT,
                            sent.getJMSTimestamp(), sent.getJMSExpiration()),
                    List.of(got.getJMSMessageID(), got.getJMSCorrelationID(), got.getJMSType(),
                            got.getStringProperty("JMSXGroupID"), got.getIntProperty("JMSXGroupSeq"),
                            got.getJMSPriority(), got.getJMSDeliveryMode(), got.getJMSTimestamp(),
                            got.getJMSExpiration()),
                    way);
            assertEquals(name, assertInstanceOf(Queue.class, got.getJMSDestination()).getQueueName(), way);
            Destination answers = got.getJMSReplyTo();
            assertEquals(name + ".answers", assertInstanceOf(jakarta.jms.Topic.class, answers).getTopicName(), way);
        }
    }

    @Test
    void requestAndReplyCrossProtocols() throws Exception {
        for (boolean fromAmqp : new boolean[] {true, false}) {
            String way = fromAmqp ? "AMQP asks OpenWire" : "OpenWire asks AMQP";
            Session asks = session(fromAmqp ? amqp() : openWire());
            Session answers = session(fromAmqp ? openWire() : amqp());
            String name = unique();
            Queue answersTo = asks.createTemporaryQueue();
            TextMessage request = asks.createTextMessage("question");
            request.setJMSReplyTo(answersTo);
            MessageConsumer waiting = asks.createConsumer(answersTo);
            asks.createProducer(asks.createQueue(name)).send(request);
            Message question = receive(answers.createConsumer(answers.createQueue(name)));
            TextMessage answer = answers.createTextMessage("answer");
            answer.setJMSCorrelationID(question.getJMSMessageID());
            assertInstanceOf(jakarta.jms.TemporaryQueue.class, question.getJMSReplyTo(), way);
            answers.createProducer(null).send(question.getJMSReplyTo(), answer);
            Message got = receive(waiting);
            assertEquals(List.of("text answer", request.getJMSMessageID()),
                    List.of(seen(got), got.getJMSCorrelationID()), way);
        }
    }

    @Test
    void deliveriesThatAreRolledBackComeAgain() throws Exception {
        for (boolean toAmqp : new boolean[] {true, false}) {
            String way = toAmqp ? "to AMQP" : "to OpenWire";
            Session sends = session(toAmqp ? openWire() : amqp());
            Session receives = (toAmqp ? amqp() : openWire()).createSession(true, Session.SESSION_TRANSACTED);
            String name = unique();
            MessageProducer producer = sends.createProducer(sends.createQueue(name));
            // The same text twice: no client may take them for duplicates.
            producer.send(sends.createTextMessage("same"));
            producer.send(sends.createTextMessage("same"));
            MessageConsumer consumer = receives.createConsumer(receives.createQueue(name));
            Message first = receive(consumer);
            receive(consumer);
            receives.rollback();
            Message again = receive(consumer);
            assertEquals(List.of(first.getJMSMessageID(), 2, true),
                    List.of(again.getJMSMessageID(), again.getIntProperty("JMSXDeliveryCount"),
                            again.getJMSRedelivered()), way);
            receive(consumer);
            receives.commit();
            assertEquals(null, consumer.receive(250), way);
        }
    }

    @Test
    void selectorsOfOneProtocolSeeMessagesOfTheOther() throws Exception {
        String selector = "JMSType = 'type' AND number > 5 AND text LIKE 'a%' AND flag AND JMSPriority = 7";
        for (boolean toAmqp : new boolean[] {true, false}) {
            Session sends = session(toAmqp ? openWire() : amqp());
            Session receives = session(toAmqp ? amqp() : openWire());
            String name = unique();
            MessageProducer producer = sends.createProducer(sends.createQueue(name));
            producer.setPriority(7);
            for (int number : new int[] {5, 6}) {
                Message message = sends.createTextMessage("number " + number);
                message.setJMSType("type");
                message.setIntProperty("number", number);
                message.setStringProperty("text", "abc");
                message.setBooleanProperty("flag", true);
                producer.send(message);
            }
            Message got = receive(receives.createConsumer(receives.createQueue(name), selector));
            assertEquals("text number 6", seen(got), toAmqp ? "to AMQP" : "to OpenWire");
        }
    }

    /** OpenWire has no room for so long a type; the next message comes, with and without prefetch. */
    @Test
    @PostroadOnly("Classic ends the sender's connection over it")
    void whatCannotBeTranslatedIsADeadLetter() throws Exception {
        for (String prefetch : new String[] {"jms.prefetchPolicy.all=1", "jms.prefetchPolicy.all=0"}) {
            Session sends = session(amqp());
            Session receives = session(openWire(prefetch));
            String name = unique();
            MessageProducer producer = sends.createProducer(sends.createQueue(name));
            for (int number = 0; number < 3; number++) {
                Message tooLong = sends.createTextMessage("too long");
                tooLong.setJMSType("x".repeat(70_000));
                tooLong.setStringProperty("test", name);
                producer.send(tooLong);
            }
            producer.send(sends.createTextMessage("short enough"));
            MessageConsumer consumer = receives.createConsumer(receives.createQueue(name));
            assertEquals("text short enough", seen(receive(consumer)), prefetch);
            MessageConsumer dead = sends.createConsumer(sends.createQueue("ActiveMQ.DLQ"), "test = '" + name + "'");
            for (int number = 0; number < 3; number++) {
                Message letter = receive(dead);
                assertEquals("text too long", seen(letter), prefetch);
            }
        }
    }

    /** Given up by a client of OpenWire, an AMQP message says so to whoever reads the dead letters. */
    @Test
    void deadLettersKeepTheirPast() throws Exception {
        String name = unique();
        Session sends = session(amqp());
        Message message = sends.createTextMessage("given up");
        message.setStringProperty("test", name);
        sends.createProducer(sends.createQueue(name)).send(message);
        Session receives = openWire("jms.redeliveryPolicy.maximumRedeliveries=0")
                .createSession(true, Session.SESSION_TRANSACTED);
        MessageConsumer consumer = receives.createConsumer(receives.createQueue(name));
        receive(consumer);
        receives.rollback();
        Session reads = session(openWire());
        Message letter = receive(reads.createConsumer(reads.createQueue("ActiveMQ.DLQ"), "test = '" + name + "'"));
        assertEquals("text given up", seen(letter));
        String cause = letter.getStringProperty("dlqDeliveryFailureCause");
        assertNotNull(cause);
    }

    @Test
    void topicsReachSubscribersOfBothProtocols() throws Exception {
        Session openWire = session(openWire());
        Session amqp = session(amqp());
        String name = unique();
        MessageConsumer byOpenWire = openWire.createConsumer(openWire.createTopic(name));
        MessageConsumer byAmqp = amqp.createConsumer(amqp.createTopic(name));
        openWire.createProducer(openWire.createTopic(name)).send(openWire.createTextMessage("by OpenWire"));
        amqp.createProducer(amqp.createTopic(name)).send(amqp.createTextMessage("by AMQP"));
        for (MessageConsumer consumer : List.of(byOpenWire, byAmqp)) {
            List<String> got = new ArrayList<>(List.of(seen(receive(consumer)), seen(receive(consumer))));
            Collections.sort(got);
            assertEquals(List.of("text by AMQP", "text by OpenWire"), got);
        }
    }
}

package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

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
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Stream;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** JMS 2.0 chapter 3: every body, property and header arrives as it was sent. */
@DisplayName("JMS 3: messages")
class MessageTypesTest extends PlainTest {
    private static final int MEBIBYTE = 1024 * 1024;
    /** No NUL and no surrogate pair: the client itself garbles both in properties and maps. */
    private static final String SHORT_TEXT = "\u20ac \u00e9 ' \"";

    interface Maker {
        Message make(Session session) throws JMSException;
    }

    interface Checker {
        void check(Message message) throws JMSException;
    }

    /** One message body: how it is made and what must arrive. */
    record Body(String name, Maker maker, Checker checker) {
        @Override
        public String toString() {
            return name;
        }
    }

    private static Body plain() {
        return new Body("Message", Session::createMessage,
                message -> assertTrue(!(message instanceof TextMessage) && !(message instanceof BytesMessage)
                        && !(message instanceof MapMessage) && !(message instanceof StreamMessage)
                        && !(message instanceof ObjectMessage), () -> "has a body: " + message));
    }

    private static Body text(String name, String text) {
        return new Body("Text " + name, session -> session.createTextMessage(text),
                message -> assertEquals(text, ((TextMessage) message).getText()));
    }

    private static Body bytes(String name, byte[] content) {
        return new Body("Bytes " + name, session -> {
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(content);
            return message;
        }, message -> {
            BytesMessage got = (BytesMessage) message;
            assertEquals(content.length, got.getBodyLength());
            byte[] read = new byte[content.length];
            assertEquals(content.length, Math.max(0, got.readBytes(read)));
            assertArrayEquals(content, read);
        });
    }

    private static Body typedBytes() {
        return new Body("Bytes of every type", session -> {
            BytesMessage message = session.createBytesMessage();
            message.writeBoolean(true);
            message.writeByte(Byte.MIN_VALUE);
            message.writeShort(Short.MIN_VALUE);
            message.writeChar('\u20ac');
            message.writeInt(Integer.MIN_VALUE);
            message.writeLong(Long.MIN_VALUE);
            message.writeFloat(Float.MIN_VALUE);
            message.writeDouble(Double.MIN_VALUE);
            message.writeUTF("gr\u00fc\u00df");
            return message;
        }, message -> {
            BytesMessage got = (BytesMessage) message;
            assertEquals(List.of(true, Byte.MIN_VALUE, Short.MIN_VALUE, '\u20ac', Integer.MIN_VALUE,
                            Long.MIN_VALUE, Float.MIN_VALUE, Double.MIN_VALUE, "gr\u00fc\u00df"),
                    List.of(got.readBoolean(), got.readByte(), got.readShort(), got.readChar(), got.readInt(),
                            got.readLong(), got.readFloat(), got.readDouble(), got.readUTF()));
            assertThrows(MessageEOFException.class, got::readByte);
        });
    }

    private static Body map(String name, Map<String, Object> entries) {
        return new Body("Map " + name, session -> {
            MapMessage message = session.createMapMessage();
            for (Map.Entry<String, Object> entry : entries.entrySet()) {
                message.setObject(entry.getKey(), entry.getValue());
            }
            return message;
        }, message -> {
            MapMessage got = (MapMessage) message;
            assertEquals(entries.keySet(), new TreeSet<>(Collections.list(namesOf(got))));
            for (Map.Entry<String, Object> entry : entries.entrySet()) {
                assertSame(entry.getKey(), entry.getValue(), got.getObject(entry.getKey()));
            }
        });
    }

    @SuppressWarnings("unchecked")
    private static java.util.Enumeration<String> namesOf(MapMessage message) throws JMSException {
        return message.getMapNames();
    }

    private static Body stream(String name, List<Object> values) {
        return new Body("Stream " + name, session -> {
            StreamMessage message = session.createStreamMessage();
            for (Object value : values) {
                message.writeObject(value);
            }
            return message;
        }, message -> {
            StreamMessage got = (StreamMessage) message;
            for (int index = 0; index < values.size(); index++) {
                assertSame("value " + index, values.get(index), got.readObject());
            }
            assertThrows(MessageEOFException.class, got::readObject);
        });
    }

    private static Body object(String name, java.io.Serializable content) {
        return new Body("Object " + name, session -> session.createObjectMessage(content),
                message -> assertEquals(content, ((ObjectMessage) message).getObject()));
    }

    private static void assertSame(String what, Object want, Object got) {
        if (want instanceof byte[] bytes) {
            assertArrayEquals(bytes, (byte[]) got, what);
        } else {
            assertEquals(want, got, what);
        }
    }

    /** One value of each type that a Map or Stream message may hold (JMS 3.11.3). */
    private static Map<String, Object> everyType() {
        Map<String, Object> values = new TreeMap<>();
        values.put("boolean", true);
        values.put("byte", Byte.MAX_VALUE);
        values.put("bytes", new byte[] {0, -1, 127, -128});
        values.put("no bytes", new byte[0]);
        values.put("char", '\u20ac');
        values.put("double", -Double.MAX_VALUE);
        values.put("float", Float.NaN);
        values.put("int", Integer.MAX_VALUE);
        values.put("long", Long.MAX_VALUE);
        values.put("null", null);
        values.put("short", Short.MAX_VALUE);
        values.put("string", SHORT_TEXT);
        values.put("empty string", "");
        values.put("long string", "x".repeat(70_000));
        return values;
    }

    static List<Body> bodies() {
        byte[] all = new byte[256];
        for (int value = 0; value < all.length; value++) {
            all[value] = (byte) value;
        }
        byte[] large = new byte[MEBIBYTE];
        new java.util.Random(7).nextBytes(large);
        return List.of(
                plain(),
                text("null", null),
                text("empty", ""),
                text("short", "hello"),
                text("of 1 MiB", "0123456789abcdef".repeat(MEBIBYTE / 16)),
                text("of supplementary planes", "\ud83d\ude80\ud834\udd1e\ud83c\udde9\ud83c\uddea"),
                text("with NUL", "a\u0000b\u0000"),
                text("with line ends", "\r\n\n\r\t"),
                bytes("empty", new byte[0]),
                bytes("of every value", all),
                bytes("of 1 MiB", large),
                typedBytes(),
                map("empty", new TreeMap<>()),
                map("of every type", everyType()),
                stream("empty", List.of()),
                stream("of every type", new ArrayList<>(everyType().values())),
                object("null", null),
                object("string", "text"),
                object("collection", new TreeMap<>(Map.of("one", new ArrayList<>(List.of(1, 2L, 3.0))))));
    }

    static Stream<Arguments> cases() {
        return bodies().stream().flatMap(body -> Stream.of(
                Arguments.of(body, "queue", "persistent"), Arguments.of(body, "queue", "non-persistent"),
                Arguments.of(body, "topic", "persistent"), Arguments.of(body, "topic", "non-persistent")));
    }

    /** One value of every property type, and the edges of their ranges (JMS 3.5.4). */
    private static Map<String, Object> properties() {
        Map<String, Object> values = new TreeMap<>();
        values.put("aBoolean", true);
        values.put("anotherBoolean", false);
        values.put("aByte", Byte.MIN_VALUE);
        values.put("aShort", Short.MIN_VALUE);
        values.put("anInt", Integer.MIN_VALUE);
        values.put("aLong", Long.MIN_VALUE);
        values.put("aFloat", Float.MIN_VALUE);
        values.put("aDouble", Double.MIN_VALUE);
        values.put("notANumber", Double.NaN);
        values.put("infinity", Float.NEGATIVE_INFINITY);
        values.put("aString", SHORT_TEXT);
        values.put("emptyString", "");
        values.put("longString", "y".repeat(40_000));
        values.put("nothing", null);
        values.put("_$\u00e4", "the name is an identifier beyond ASCII");
        return values;
    }

    @ParameterizedTest(name = "{0}, {1}, {2}")
    @MethodSource("cases")
    @DisplayName("JMS 3.5, 3.11: body and properties arrive unchanged")
    void bodyAndPropertiesArriveUnchanged(Body body, String kind, String mode) throws Exception {
        Connection connection = connect();
        Session session = autoAcknowledge(connection);
        Destination destination = kind.equals("queue") ? queue("body") : topic("body");
        MessageConsumer consumer = session.createConsumer(destination);
        MessageProducer producer = session.createProducer(destination);
        int deliveryMode = mode.equals("persistent") ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT;
        producer.setDeliveryMode(deliveryMode);
        Message sent = body.maker().make(session);
        for (Map.Entry<String, Object> property : properties().entrySet()) {
            sent.setObjectProperty(property.getKey(), property.getValue());
        }
        producer.send(sent);

        Message got = receive(consumer);
        body.checker().check(got);
        for (Map.Entry<String, Object> property : properties().entrySet()) {
            assertEquals(property.getValue(), got.getObjectProperty(property.getKey()), property.getKey());
        }
        assertTrue(Collections.list(got.getPropertyNames()).containsAll(properties().keySet()));
        assertEquals(deliveryMode, got.getJMSDeliveryMode());
        assertEquals(destination, got.getJMSDestination());
        assertEquals(sent.getJMSMessageID(), got.getJMSMessageID());
    }

    @ParameterizedTest(name = "{0}")
    @MethodSource("bodies")
    @DisplayName("JMS 3.10: a received message can be sent on as it is")
    void receivedMessageCanBeForwarded(Body body) throws Exception {
        Session session = autoAcknowledge(connect());
        Destination first = queue("first");
        Destination second = topic("second");
        MessageConsumer last = session.createConsumer(second);
        Message sent = body.maker().make(session);
        sent.setStringProperty("kept", "yes");
        session.createProducer(first).send(sent);
        Message between = receive(session.createConsumer(first));
        String firstId = between.getJMSMessageID();
        session.createProducer(second).send(between);
        Message got = receive(last);
        body.checker().check(got);
        assertEquals("yes", got.getStringProperty("kept"));
        assertEquals(second, got.getJMSDestination());
        assertTrue(!firstId.equals(got.getJMSMessageID()), "a send gives a new message id");
    }

    @Test
    @DisplayName("JMS 3.4: headers that the sender sets")
    void headersOfTheSender() throws Exception {
        Session session = autoAcknowledge(connect());
        for (Destination replyTo : new Destination[] {null, queue("reply"), topic("reply"),
                session.createTemporaryQueue(), session.createTemporaryTopic()}) {
            Destination destination = queue("headers");
            Message sent = session.createMessage();
            sent.setJMSCorrelationID("order \u20ac 7");
            sent.setJMSType("invoice");
            sent.setJMSReplyTo(replyTo);
            session.createProducer(destination).send(sent);
            Message got = receive(session.createConsumer(destination));
            assertEquals("order \u20ac 7", got.getJMSCorrelationID());
            assertEquals("invoice", got.getJMSType());
            assertEquals(replyTo, got.getJMSReplyTo());
        }
    }

    @Test
    @DisplayName("JMS 3.4.5: correlation id as bytes")
    void correlationIdAsBytes() throws Exception {
        Session session = autoAcknowledge(connect());
        Destination destination = queue("correlation");
        Message sent = session.createMessage();
        byte[] id = {'i', 'd', '-', 1, 2, 3, 127};
        sent.setJMSCorrelationIDAsBytes(id);
        session.createProducer(destination).send(sent);
        assertArrayEquals(id, receive(session.createConsumer(destination)).getJMSCorrelationIDAsBytes());
    }

    @Test
    @DisplayName("JMS 3.4: headers left out arrive as null")
    void absentHeaders() throws Exception {
        Session session = autoAcknowledge(connect());
        Destination destination = queue("absent");
        session.createProducer(destination).send(session.createMessage());
        Message got = receive(session.createConsumer(destination));
        assertNull(got.getJMSCorrelationID());
        assertNull(got.getJMSType());
        assertNull(got.getJMSReplyTo());
        assertEquals(0, got.getJMSExpiration());
        assertEquals(Message.DEFAULT_PRIORITY, got.getJMSPriority());
        assertEquals(DeliveryMode.PERSISTENT, got.getJMSDeliveryMode());
    }

    @Test
    @DisplayName("JMS 3.4.10: every priority from 0 to 9")
    void priorities() throws Exception {
        Session session = autoAcknowledge(connect());
        for (int priority = 0; priority <= 9; priority++) {
            Destination destination = queue("priority");
            session.createProducer(destination)
                    .send(session.createMessage(), DeliveryMode.NON_PERSISTENT, priority, 0);
            assertEquals(priority, receive(session.createConsumer(destination)).getJMSPriority());
        }
    }

    @Test
    @DisplayName("JMS 3.4.3, 3.4.4: message id and timestamp")
    void messageIdAndTimestamp() throws Exception {
        Session session = autoAcknowledge(connect());
        Destination destination = queue("id");
        MessageProducer producer = session.createProducer(destination);
        long before = System.currentTimeMillis();
        producer.send(session.createMessage());
        long after = System.currentTimeMillis();
        MessageConsumer consumer = session.createConsumer(destination);
        Message got = receive(consumer);
        assertTrue(got.getJMSMessageID().startsWith("ID:"), got.getJMSMessageID());
        long timestamp = got.getJMSTimestamp();
        assertTrue(before <= timestamp && timestamp <= after, () -> before + " " + timestamp + " " + after);
        producer.setDisableMessageTimestamp(true);
        producer.send(session.createMessage());
        assertEquals(0, receive(consumer).getJMSTimestamp());
    }

    @Test
    @DisplayName("JMS 3.4.9: expiration is timestamp plus time to live")
    void expiration() throws Exception {
        Session session = autoAcknowledge(connect());
        Destination destination = queue("expiration");
        MessageProducer producer = session.createProducer(destination);
        producer.setTimeToLive(600_000);
        producer.send(session.createMessage());
        Message got = receive(session.createConsumer(destination));
        assertEquals(got.getJMSTimestamp() + 600_000, got.getJMSExpiration());
    }

    @ParameterizedTest(name = "delivery mode {0}")
    @org.junit.jupiter.params.provider.ValueSource(ints = {DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT})
    @DisplayName("JMS 3.4.9: an expired message is not delivered")
    void expiredMessageIsNotDelivered(int deliveryMode) throws Exception {
        Session session = autoAcknowledge(connect());
        Destination destination = queue("expired");
        MessageProducer producer = session.createProducer(destination);
        producer.setDeliveryMode(deliveryMode);
        producer.send(session.createTextMessage("short-lived"), deliveryMode, 4, 50);
        producer.send(session.createTextMessage("stays"), deliveryMode, 4, 0);
        Thread.sleep(150);
        MessageConsumer consumer = session.createConsumer(destination);
        assertEquals("stays", text(receive(consumer)));
        assertSilent(consumer);
    }

    @Test
    @DisplayName("JMS 3.5.9: group id and sequence")
    void groupProperties() throws Exception {
        Session session = autoAcknowledge(connect());
        Destination destination = queue("group");
        Message sent = session.createMessage();
        sent.setStringProperty("JMSXGroupID", "g\u00e9");
        sent.setIntProperty("JMSXGroupSeq", 3);
        session.createProducer(destination).send(sent);
        Message got = receive(session.createConsumer(destination));
        assertEquals("g\u00e9", got.getStringProperty("JMSXGroupID"));
        assertEquals(3, got.getIntProperty("JMSXGroupSeq"));
    }
}

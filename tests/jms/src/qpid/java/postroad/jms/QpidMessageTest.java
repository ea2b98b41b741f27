package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import jakarta.jms.BytesMessage;
import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

/** Bodies and properties of every type by AMQP, and the simplified API. */
class QpidMessageTest extends QpidTest {
    private Message roundTrip(Session session, Message message) throws Exception {
        Queue queue = session.createQueue(unique("message"));
        session.createProducer(queue).send(message);
        return receive(session.createConsumer(queue));
    }

    @Test
    void bytesComeAsTheyWereSent() throws Exception {
        Session session = autoAcknowledge(connect());
        byte[] bytes = {0, -1, 127, 10, 13};
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(bytes);
        BytesMessage got = (BytesMessage) roundTrip(session, message);
        byte[] body = new byte[(int) got.getBodyLength()];
        got.readBytes(body);
        assertArrayEquals(bytes, body);
    }

    @Test
    void mapsKeepNamesAndTypes() throws Exception {
        Session session = autoAcknowledge(connect());
        MapMessage message = session.createMapMessage();
        message.setInt("int", 1);
        message.setString("text", "gr\u00fcn");
        message.setDouble("double", 0.5);
        message.setBoolean("boolean", true);
        message.setChar("char", 'c');
        MapMessage got = (MapMessage) roundTrip(session, message);
        Map<String, Object> seen = new TreeMap<>();
        for (Object name : Collections.list(got.getMapNames())) {
            seen.put((String) name, got.getObject((String) name));
        }
        assertEquals(Map.of("int", 1, "text", "gr\u00fcn", "double", 0.5, "boolean", true, "char", 'c'), seen);
    }

    @Test
    void streamsKeepTheirOrder() throws Exception {
        Session session = autoAcknowledge(connect());
        StreamMessage message = session.createStreamMessage();
        List<Object> values = List.of(1, "two", 3L, 4.0, true, (byte) 6);
        for (Object value : values) {
            message.writeObject(value);
        }
        StreamMessage got = (StreamMessage) roundTrip(session, message);
        List<Object> seen = new ArrayList<>();
        for (int index = 0; index < values.size(); index++) {
            seen.add(got.readObject());
        }
        assertEquals(values, seen);
    }

    @Test
    void objectsComeBack() throws Exception {
        Session session = autoAcknowledge(connect("jms.deserializationPolicy.allowList=*"));
        ObjectMessage got = (ObjectMessage) roundTrip(session, session.createObjectMessage(new ArrayList<>(List.of("a"))));
        assertEquals(List.of("a"), got.getObject());
    }

    @Test
    void headersAndPropertiesOfEveryTypeCome() throws Exception {
        Session session = autoAcknowledge(connect());
        Message message = session.createMessage();
        message.setBooleanProperty("boolean", true);
        message.setByteProperty("byte", (byte) -1);
        message.setShortProperty("short", (short) 2);
        message.setIntProperty("int", 3);
        message.setLongProperty("long", 4);
        message.setFloatProperty("float", 0.5f);
        message.setDoubleProperty("double", 0.25);
        message.setStringProperty("string", "gr\u00fcn");
        message.setStringProperty("JMSXGroupID", "group");
        message.setIntProperty("JMSXGroupSeq", 7);
        message.setJMSType("type");
        message.setJMSCorrelationID("correlation");
        Message got = roundTrip(session, message);
        Map<String, Object> seen = new TreeMap<>();
        for (Object name : Collections.list(got.getPropertyNames())) {
            seen.put((String) name, got.getObjectProperty((String) name));
        }
        Map<String, Object> want = new TreeMap<>(Map.of("boolean", true, "byte", (byte) -1, "short", (short) 2,
                "int", 3, "long", 4L, "float", 0.5f, "double", 0.25, "string", "gr\u00fcn"));
        want.put("JMSXGroupID", "group");
        want.put("JMSXGroupSeq", 7);
        want.put("JMSXDeliveryCount", 1);
        assertEquals(want, seen);
        assertEquals("type correlation " + message.getJMSMessageID() + " " + message.getJMSTimestamp(),
                got.getJMSType() + " " + got.getJMSCorrelationID() + " " + got.getJMSMessageID() + " "
                        + got.getJMSTimestamp());
        assertEquals(message.getJMSDestination(), got.getJMSDestination());
    }

    @Test
    void aContextSendsAndReceives() throws Exception {
        try (JMSContext context = factory().createContext(JMSContext.AUTO_ACKNOWLEDGE)) {
            Queue queue = context.createQueue(unique("context"));
            context.createProducer().setProperty("number", 1).setPriority(7).send(queue, "a").send(queue, "b");
            JMSConsumer consumer = context.createConsumer(queue, "number = 1");
            assertEquals("a", consumer.receiveBody(String.class, PATIENCE_MS));
            assertEquals("b", consumer.receive(PATIENCE_MS).getBody(String.class));
        }
    }

    @Test
    void aTransactedContextCommitsAndRollsBack() throws Exception {
        try (JMSContext context = factory().createContext(JMSContext.SESSION_TRANSACTED)) {
            Queue queue = context.createQueue(unique("transacted"));
            context.createProducer().send(queue, "lost");
            context.rollback();
            context.createProducer().send(queue, "kept");
            context.commit();
            assertEquals("kept", context.createConsumer(queue).receiveBody(String.class, PATIENCE_MS));
            context.commit();
            assertEmpty(queue);
        }
    }
}

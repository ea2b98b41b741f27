package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.net.URI;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Date;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.qpid.proton.amqp.Decimal128;
import org.apache.qpid.proton.amqp.Decimal32;
import org.apache.qpid.proton.amqp.Decimal64;
import org.apache.qpid.proton.amqp.DescribedType;
import org.apache.qpid.proton.amqp.Symbol;
import org.apache.qpid.proton.amqp.UnsignedByte;
import org.apache.qpid.proton.amqp.UnsignedInteger;
import org.apache.qpid.proton.amqp.UnsignedLong;
import org.apache.qpid.proton.amqp.messaging.AmqpSequence;
import org.apache.qpid.proton.amqp.messaging.AmqpValue;
import org.apache.qpid.proton.amqp.messaging.ApplicationProperties;
import org.apache.qpid.proton.amqp.messaging.Section;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Messages that are legal AMQP and that no JMS client composes: whoever receives them gets what the tables of fidelity.md say. */
@ExtendWith({SharedBroker.class, FailureReport.class})
class UnusualMessagesTest {
    private static final long PATIENCE_MS = 5_000;
    private static final long SILENCE_MS = 500;
    private static final UUID SOME_ID = new UUID(1, 2);
    private static final UnsignedLong LARGEST = UnsignedLong.valueOf(-1L);
    private static final Decimal32 TENTH_32 = new Decimal32(0x32000001);
    private static final Decimal64 TENTH_64 = new Decimal64(0x31a0000000000001L);
    private static final Decimal128 TENTH_128 = new Decimal128(0x303e000000000000L, 1);

    /** What is sent, and how it looks to a client of OpenWire and to one of AMQP. */
    private record Case(String name, byte[] message, String openWire, String amqp) {}

    private record Point(Object descriptor, Object described) implements DescribedType {
        @Override
        public Object getDescriptor() {
            return descriptor;
        }

        @Override
        public Object getDescribed() {
            return described;
        }
    }

    private static byte[] encoded(org.apache.qpid.proton.message.Message message) {
        byte[] bytes = new byte[4096];
        return Arrays.copyOf(bytes, message.encode(bytes, 0, bytes.length));
    }

    private static byte[] of(Section body) {
        org.apache.qpid.proton.message.Message message = org.apache.qpid.proton.message.Message.Factory.create();
        message.setBody(body);
        return encoded(message);
    }

    private static byte[] of(Object value) {
        return of(new AmqpValue(value));
    }

    private static byte[] hex(String sections) {
        return HexFormat.of().parseHex(sections.replace(" ", ""));
    }

    private static Map<Object, Object> map(Object... pairs) {
        Map<Object, Object> map = new LinkedHashMap<>();
        for (int index = 0; index < pairs.length; index += 2) {
            map.put(pairs[index], pairs[index + 1]);
        }
        return map;
    }

    private static final List<Case> BODIES = List.of(
            new Case("described", of(new Point(Symbol.valueOf("x:point"), List.of(1, 2))),
                    "stream [Integer 1, Integer 2]", null),
            new Case("array", of(new int[] {1, 2}), "stream [Integer 1, Integer 2]", null),
            new Case("keys that are no text", of(map(1, "a", true, "b", SOME_ID, "c", LARGEST, "d")),
                    "map {" + SOME_ID + "=String c, 1=String a, 18446744073709551615=String d, true=String b}", null),
            new Case("two keys of one text: the last one counts", of(map(1, "a", "1", "b")), "map {1=String b}", null),
            new Case("decimals", of(List.of(TENTH_32, TENTH_64, TENTH_128)), "stream [Double 0.1, Double 0.1, Double 0.1]", null),
            new Case("time before 1970", of(new Date(-1)), "stream [Long -1]", null),
            new Case("character", of('x'), "stream [Character x]", "object Character x"),
            new Case("character beyond U+FFFF", hex("005377 73 0001f600"), "stream [String \ud83d\ude00]", null),
            new Case("uuid", of(SOME_ID), "stream [String " + SOME_ID + "]", "object UUID " + SOME_ID),
            new Case("ulong", of(LARGEST), "stream [String 18446744073709551615]", "object UnsignedLong " + LARGEST),
            new Case("unsigned", of(List.of(UnsignedByte.valueOf((byte) -1), UnsignedInteger.valueOf(-1))),
                    "stream [Short 255, Long 4294967295]", null),
            new Case("symbol", of(Symbol.valueOf("s")), "stream [String s]", null),
            new Case("boolean", of(true), "stream [Boolean true]", "object Boolean true"),
            new Case("nothing", of((Object) null), "text null", "text null"),
            new Case("a list inside of a sequence", of(new AmqpSequence(List.of(1, List.of(2)))),
                    "map {0=Integer 1, 1=ArrayList [2]}", null),
            new Case("two sequences", hex("005376 c0 03 01 5401 005376 c0 03 01 5402"), "stream [Integer 1, Integer 2]", null),
            new Case("three data sections", hex("005375 a0 02 6162 005375 a0 00 005375 a0 01 63"), "bytes 616263", null),
            new Case("no section at all", hex(""), "bytes ", "bytes "),
            new Case("a header alone", hex("005370 45"), "bytes ", "bytes "),
            new Case("annotations for one hop and a footer",
                    hex("005371 c1 0d 02 a3 07 782d6f70742d64 a1 01 61 005377 a1 01 62 005378 c1 0d 02 a3 07 782d6f70742d66 a1 01 7a"),
                    "text b", "text b"));

    private static final Map<Object, Object> PROPERTIES = map("ulong", LARGEST, "decimal", TENTH_64, "time", new Date(-1),
            "uuid", SOME_ID, "char", 'x', "ubyte", UnsignedByte.valueOf((byte) -1), "symbol", Symbol.valueOf("s"), "null", null);

    private final List<String> wrong = new ArrayList<>();

    private static URI broker() {
        return URI.create(SharedBroker.amqpUrl());
    }

    /** The next message of a queue, as text; what the client's library throws at a body that it does not take is its own business. */
    private static String seen(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(PATIENCE_MS);
        if (message == null) {
            return "nothing";
        }
        try {
            return FidelityTest.seen(message);
        } catch (JMSException | RuntimeException unusual) {
            return "threw " + unusual;
        }
    }

    private void bodiesReach(Connection connection, boolean openWire) throws Exception {
        Session session = FidelityTest.session(connection);
        String queue = FidelityTest.unique();
        RawSender.send(broker(), queue, BODIES.stream().map(Case::message).toArray(byte[][]::new));
        MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
        for (Case body : BODIES) {
            String got = seen(consumer);
            String want = openWire ? body.openWire : body.amqp;
            if (want == null ? got.equals("nothing") : !want.equals(got)) {
                wrong.add(body.name + ": " + got + " instead of " + want);
            }
        }
        assertEquals(List.of(), wrong);
        assertNull(consumer.receive(SILENCE_MS), "each came once");
    }

    @Test
    @PostroadOnly("Classic makes bytes of the encoded message of most of these")
    void unusualBodiesReachOpenWire() throws Exception {
        try (Connection connection = FidelityTest.startedOpenWire()) {
            bodiesReach(connection, true);
        }
    }

    @Test
    @PostroadOnly("as unusualBodiesReachOpenWire")
    void unusualBodiesReachAmqp() throws Exception {
        try (Connection connection = FidelityTest.startedAmqp()) {
            bodiesReach(connection, false);
        }
    }

    @Test
    @PostroadOnly("as unusualBodiesReachOpenWire")
    void whatALibraryCannotReadIsADeadLetter() throws Exception {
        String queue = FidelityTest.unique();
        org.apache.qpid.proton.message.Message head = org.apache.qpid.proton.message.Message.Factory.create();
        head.setDurable(true);
        head.setSubject(queue);
        ByteBuffer describedNumbers = ByteBuffer.allocate(4096).put(encoded(head)).put(hex("005377 e0 08 02 00 a3 01 78 53 01 02"));
        byte[] message = Arrays.copyOf(describedNumbers.array(), describedNumbers.position());
        try (Connection amqp = FidelityTest.startedAmqp(); Connection openWire = FidelityTest.startedOpenWire()) {
            RawSender.send(broker(), queue, message, message);
            Session reads = FidelityTest.session(openWire);
            MessageConsumer able = reads.createConsumer(reads.createQueue(queue));
            assertEquals("stream [Long 1, Long 2]", seen(able));
            able.close();
            Session session = FidelityTest.session(amqp);
            assertEquals("nothing", seen(session.createConsumer(session.createQueue(queue))));
            Queue deadLetters = reads.createQueue("ActiveMQ.DLQ");
            Message dead = FidelityTest.receive(reads.createConsumer(deadLetters, "JMSType = '" + queue + "'"));
            assertEquals("stream [Long 1, Long 2]", FidelityTest.seen(dead));
            String cause = dead.getStringProperty("dlqDeliveryFailureCause");
            assertTrue(cause.contains("undeliverable-here"), cause);
        }
    }

    private static byte[] withProperties() {
        org.apache.qpid.proton.message.Message message = org.apache.qpid.proton.message.Message.Factory.create();
        Map<String, Object> properties = new LinkedHashMap<>();
        PROPERTIES.forEach((name, value) -> properties.put((String) name, value));
        message.setApplicationProperties(new ApplicationProperties(properties));
        message.setMessageId(SOME_ID);
        message.setCorrelationId(LARGEST);
        message.setCreationTime(-1);
        message.setGroupId("g");
        message.setGroupSequence(0xffff_ffffL);
        message.setUserId(new byte[] {(byte) 0xff});
        message.setSubject("type");
        message.setBody(new AmqpValue("body"));
        return encoded(message);
    }

    private static List<String> properties(Connection connection, String queue) throws JMSException {
        Session session = FidelityTest.session(connection);
        Message message = FidelityTest.receive(session.createConsumer(session.createQueue(queue)));
        List<String> seen = new ArrayList<>();
        for (Object name : Collections.list(message.getPropertyNames())) {
            if (PROPERTIES.containsKey(name)) {
                seen.add(name + " " + FidelityTest.value(message.getObjectProperty((String) name)));
            }
        }
        Collections.sort(seen);
        seen.add(message.getJMSMessageID() + " " + message.getJMSCorrelationID() + " " + message.getJMSTimestamp() + " "
                + message.getJMSType() + " " + message.getIntProperty("JMSXGroupSeq"));
        return seen;
    }

    @Test
    @PostroadOnly("Classic shows some of these otherwise")
    void unusualPropertiesReachBoth() throws Exception {
        String queue = FidelityTest.unique();
        RawSender.send(broker(), queue, withProperties(), withProperties());
        String headers = "ID:AMQP_UUID:" + SOME_ID + " ID:AMQP_ULONG:18446744073709551615 -1 type -1";
        try (Connection connection = FidelityTest.startedOpenWire("jms.prefetchPolicy.all=1")) {
            assertEquals(List.of("char Character x", "decimal Double 0.1", "null null", "symbol String s", "time Long -1",
                    "ubyte Short 255", "ulong String 18446744073709551615", "uuid String " + SOME_ID, headers),
                    properties(connection, queue));
        }
        try (Connection connection = FidelityTest.startedAmqp()) {
            List<String> seen = properties(connection, queue);
            assertEquals(headers, seen.get(seen.size() - 1));
            assertEquals(PROPERTIES.size() + 1, seen.size(), seen.toString());
        }
    }

    @Test
    void anEndBefore1970IsNone() throws Exception {
        String queue = FidelityTest.unique();
        org.apache.qpid.proton.message.Message endless = org.apache.qpid.proton.message.Message.Factory.create();
        endless.setExpiryTime(-1);
        endless.setBody(new AmqpValue("endless"));
        RawSender.send(broker(), queue, encoded(endless));
        Connection connection = FidelityTest.startedAmqp();
        Session session = FidelityTest.session(connection);
        assertEquals("text endless", seen(session.createConsumer(session.createQueue(queue))));
        connection.close();
    }

    /** `System.currentTimeMillis() + Long.MAX_VALUE` is what Qpid JMS writes then, and that is negative. */
    @Test
    void theLongestTimeToLiveNeverEnds() throws Exception {
        String queue = FidelityTest.unique();
        Connection connection = FidelityTest.startedAmqp();
        Session session = FidelityTest.session(connection);
        jakarta.jms.MessageProducer producer = session.createProducer(session.createQueue(queue));
        producer.setTimeToLive(Long.MAX_VALUE);
        producer.send(session.createTextMessage("lives"));
        assertEquals("text lives", seen(session.createConsumer(session.createQueue(queue))));
        connection.close();
    }
}

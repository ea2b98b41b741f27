package postroad.jms;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

/** Sends the bytes of AMQP messages as they are, settled: what no client library would compose. */
final class RawSender {
    private static final byte[] HEADER = {'A', 'M', 'Q', 'P', 0, 1, 0, 0};
    private static final String NULL = "40";
    private static final String ZERO = "43";
    private static final String TRUE = "41";
    private static final String FALSE = "42";
    private static final String MANY = "7000010000";

    private final ByteArrayOutputStream out = new ByteArrayOutputStream();
    private int deliveries;

    private RawSender(String queue) {
        out.writeBytes(HEADER);
        performative(0x10, 1, string("raw"));
        performative(0x11, 4, NULL + ZERO + MANY + MANY);
        String target = "005329" + list(1, string(queue));
        performative(0x12, 10, string("raw") + ZERO + FALSE + "5001" + "5000" + "005328" + "45" + target + NULL + NULL + ZERO);
    }

    /** Sends these messages to a queue, and comes back once the broker has read them. */
    static void send(URI broker, String queue, byte[]... messages) throws IOException {
        RawSender sender = new RawSender(queue);
        for (byte[] message : messages) {
            sender.transfer(message);
        }
        sender.performative(0x18, 0, "");
        try (Socket socket = new Socket(broker.getHost(), broker.getPort())) {
            socket.setSoTimeout(10_000);
            OutputStream output = socket.getOutputStream();
            sender.out.writeTo(output);
            output.flush();
            InputStream input = socket.getInputStream();
            String said = HexFormat.of().formatHex(input.readAllBytes());
            if (said.contains("005316") || !said.endsWith(frame(0x18, 0, "", new byte[0]))) {
                throw new IOException("the broker has detached the link, or not said goodbye in peace: " + said);
            }
        }
    }

    private void transfer(byte[] message) {
        String number = "52" + "%02x".formatted(deliveries);
        String tag = "a001" + "%02x".formatted(deliveries);
        deliveries++;
        String frame = frame(0x14, 5, ZERO + number + tag + ZERO + TRUE, message);
        out.writeBytes(HexFormat.of().parseHex(frame));
    }

    private void performative(int code, int count, String fields) {
        out.writeBytes(HexFormat.of().parseHex(frame(code, count, fields, new byte[0])));
    }

    private static String frame(int code, int count, String fields, byte[] payload) {
        String body = "0053%02x".formatted(code) + list(count, fields) + HexFormat.of().formatHex(payload);
        byte[] size = ByteBuffer.allocate(4).putInt(8 + body.length() / 2).array();
        return HexFormat.of().formatHex(size) + "02000000" + body;
    }

    private static String list(int count, String fields) {
        return count == 0 ? "45" : "c0%02x%02x".formatted(fields.length() / 2 + 1, count) + fields;
    }

    private static String string(String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        return "a1%02x".formatted(bytes.length) + HexFormat.of().formatHex(bytes);
    }
}

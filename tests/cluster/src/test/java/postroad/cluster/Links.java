package postroad.cluster;

import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The network between nodes: a proxy at the address by which others reach each node. A link that is cut keeps its bytes and loses none,
 * as TCP does while a cable is out: they arrive once it is restored, or never if a side has given up.
 */
final class Links implements AutoCloseable {
    /** In the first frame of a node that connects, behind length, magic and version (docs/formats/replication.md). */
    private static final int NODE_AT = 4 + 8 + 1 + 3;
    private static final int HEAD_BYTES = NODE_AT + 8;
    /** Connections of clients begin with one of these, and those without TLS wait for an answer (docs/formats/replication.md). */
    private static final Set<String> OF_CLIENTS = Set.of("PRfwrd\r\n", "PRlogn\r\n", "PRtlsn\r\n");
    private static final int MAGIC_BYTES = 8;
    /** Links of clients are of no node: they are not cut. */
    private static final long NO_NODE = 0;

    /** One direction between two nodes, numbered from 1. */
    private record Way(long from, long to) {}

    /** Both ends of a connection that goes through this proxy, and the node that made it. */
    private record Carried(Way way, Socket from, Socket to) {
        void close() throws IOException {
            from.close();
            to.close();
        }
    }

    private final Set<Way> cut = ConcurrentHashMap.newKeySet();
    private final Map<Way, Long> delaysMs = new ConcurrentHashMap<>();
    private final Set<Carried> connections = ConcurrentHashMap.newKeySet();
    /** Sockets of nodes that have not said who they are, or wait for a link that is cut. */
    private final Set<Socket> waiting = ConcurrentHashMap.newKeySet();
    private final Set<ServerSocket> listeners = ConcurrentHashMap.newKeySet();
    private final boolean records;
    /** The bytes of each direction of each connection, if they are recorded. */
    private final Set<ByteArrayOutputStream> recorded = ConcurrentHashMap.newKeySet();
    private volatile boolean ends;

    private Links(boolean records) {
        this.records = records;
    }

    Links() {
        this(false);
    }

    /** Links that keep all bytes that they carry, for {@link #carried}. */
    static Links recording() {
        return new Links(true);
    }

    /** Forwards connections at one port of the loopback interface to the other, which belongs to a node. */
    void serve(long node, int port, int target) throws IOException {
        ServerSocket listener = new ServerSocket(port, 64, InetAddress.getLoopbackAddress());
        listeners.add(listener);
        start(() -> {
            while (!ends) {
                Socket socket = listener.accept();
                start(() -> connect(node, socket, target));
            }
        });
    }

    private void connect(long node, Socket socket, int target) throws IOException {
        waiting.add(socket);
        try {
            DataInputStream in = new DataInputStream(socket.getInputStream());
            byte[] head = in.readNBytes(MAGIC_BYTES);
            boolean isClient = OF_CLIENTS.contains(new String(head, StandardCharsets.ISO_8859_1));
            if (!isClient) {
                head = concat(head, in.readNBytes(HEAD_BYTES - MAGIC_BYTES));
            }
            if (!isClient && head.length < HEAD_BYTES) {
                socket.close();
                return;
            }
            long from = isClient ? NO_NODE : ByteBuffer.wrap(head, NODE_AT, 8).order(ByteOrder.LITTLE_ENDIAN).getLong();
            Way way = new Way(from, node);
            await(way);
            Socket forward = new Socket(InetAddress.getLoopbackAddress(), target);
            Carried carried = new Carried(way, socket, forward);
            connections.add(carried);
            forward.setTcpNoDelay(true);
            socket.setTcpNoDelay(true);
            forward.getOutputStream().write(head);
            OutputStream sent = copyOfOne();
            sent.write(head);
            start(() -> copy(carried, new Way(node, from), copyOfOne()));
            start(() -> copy(carried, way, sent));
        } catch (IOException targetIsGone) {
            socket.close();
        } finally {
            waiting.remove(socket);
        }
    }

    private static byte[] concat(byte[] first, byte[] rest) {
        byte[] all = Arrays.copyOf(first, first.length + rest.length);
        System.arraycopy(rest, 0, all, first.length, rest.length);
        return all;
    }

    /** Where the bytes of one direction go besides, if they are recorded. */
    private OutputStream copyOfOne() {
        if (!records) {
            return OutputStream.nullOutputStream();
        }
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        recorded.add(bytes);
        return bytes;
    }

    /** In how many directions of recorded connections this text is among the bytes. */
    long carried(String text) {
        return recorded.stream().filter(bytes -> bytes.toString(StandardCharsets.ISO_8859_1).contains(text)).count();
    }

    private void copy(Carried carried, Way way, OutputStream recording) throws IOException {
        Socket from = way == carried.way ? carried.from : carried.to;
        Socket to = way == carried.way ? carried.to : carried.from;
        byte[] bytes = new byte[64 << 10];
        try (from; to) {
            InputStream in = from.getInputStream();
            OutputStream out = to.getOutputStream();
            for (int length = in.read(bytes); length > 0; length = in.read(bytes)) {
                await(way);
                recording.write(bytes, 0, length);
                out.write(bytes, 0, length);
            }
        } catch (IOException closed) {
            // The other side learns of it as well.
        } finally {
            connections.remove(carried);
        }
    }

    private void await(Way way) {
        try {
            Long delayMs = delaysMs.get(way);
            if (delayMs != null) {
                Thread.sleep(delayMs);
            }
            while (cut.contains(way) && !ends) {
                Thread.sleep(10);
            }
        } catch (InterruptedException ended) {
            // The connection goes on, or ends with the test.
        }
    }

    /** Nothing gets from one node to the other. */
    void cut(long from, long to) {
        cut.add(new Way(from, to));
    }

    /** Bytes from one node take this long to the other, and up to twice as long if there are more meanwhile: 64 KiB go at a time. */
    void delay(long from, long to, long ms) {
        delaysMs.put(new Way(from, to), ms);
    }

    /** The connections between two nodes end. */
    void sever(long one, long other) throws IOException {
        for (Carried carried : connections) {
            if (carried.way.equals(new Way(one, other)) || carried.way.equals(new Way(other, one))) {
                carried.close();
            }
        }
    }

    /** All links work again. */
    void restore() {
        cut.clear();
        delaysMs.clear();
    }

    private interface Work {
        void run() throws IOException;
    }

    private void start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (IOException ended) {
                // A listener or connection was closed.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public void close() throws IOException {
        ends = true;
        for (ServerSocket listener : listeners) {
            listener.close();
        }
        for (Socket socket : waiting) {
            socket.close();
        }
        for (Carried carried : connections) {
            carried.close();
        }
    }
}

package postroad.cluster;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
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

    /** One direction between two nodes, numbered from 1. */
    private record Way(long from, long to) {}

    private final Set<Way> cut = ConcurrentHashMap.newKeySet();
    private final Set<Socket> sockets = ConcurrentHashMap.newKeySet();
    private final Set<ServerSocket> listeners = ConcurrentHashMap.newKeySet();
    private volatile boolean ends;

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
        sockets.add(socket);
        DataInputStream in = new DataInputStream(socket.getInputStream());
        byte[] head = in.readNBytes(HEAD_BYTES);
        if (head.length < HEAD_BYTES) {
            socket.close();
            return;
        }
        long from = ByteBuffer.wrap(head, NODE_AT, 8).order(ByteOrder.LITTLE_ENDIAN).getLong();
        try {
            await(new Way(from, node));
            Socket forward = new Socket(InetAddress.getLoopbackAddress(), target);
            sockets.add(forward);
            forward.setTcpNoDelay(true);
            socket.setTcpNoDelay(true);
            new DataOutputStream(forward.getOutputStream()).write(head);
            start(() -> copy(new Way(node, from), forward, socket));
            copy(new Way(from, node), socket, forward);
        } catch (IOException targetIsGone) {
            socket.close();
        }
    }

    private void copy(Way way, Socket from, Socket to) throws IOException {
        byte[] bytes = new byte[64 << 10];
        try (from; to) {
            InputStream in = from.getInputStream();
            OutputStream out = to.getOutputStream();
            for (int length = in.read(bytes); length > 0; length = in.read(bytes)) {
                await(way);
                out.write(bytes, 0, length);
            }
        } catch (IOException closed) {
            // The other side learns of it as well.
        } finally {
            sockets.remove(from);
            sockets.remove(to);
        }
    }

    private void await(Way way) {
        while (cut.contains(way) && !ends) {
            try {
                Thread.sleep(10);
            } catch (InterruptedException ended) {
                return;
            }
        }
    }

    /** Nothing gets from one node to the other. */
    void cut(long from, long to) {
        cut.add(new Way(from, to));
    }

    /** All links work again. */
    void restore() {
        cut.clear();
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
        for (Socket socket : sockets) {
            socket.close();
        }
    }
}

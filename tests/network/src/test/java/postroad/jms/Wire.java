package postroad.jms;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayDeque;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/** The network between two brokers: passes bytes on, late if it is told to, and cuts connections. */
final class Wire implements AutoCloseable {
    private final ServerSocket listener = new ServerSocket(0, 16, InetAddress.getLoopbackAddress());
    private final Set<Socket> sockets = ConcurrentHashMap.newKeySet();
    private final AtomicInteger cuts = new AtomicInteger();
    private final AtomicLong bytes = new AtomicLong();
    private final long delayNanos;
    private volatile Random random;
    private volatile int bytesMax;

    Wire(int to) throws IOException {
        this(to, 0);
    }

    /** To this port of the loopback interface; each byte takes so long one way. */
    Wire(int to, long delayMillis) throws IOException {
        delayNanos = delayMillis * 1_000_000;
        thread(() -> {
            while (!listener.isClosed()) {
                Socket from = listener.accept();
                Socket onward = new Socket(InetAddress.getLoopbackAddress(), to);
                from.setTcpNoDelay(true);
                onward.setTcpNoDelay(true);
                sockets.add(from);
                sockets.add(onward);
                Random cutting = random;
                long left = cutting == null ? Long.MAX_VALUE : 1 + cutting.nextInt(bytesMax);
                AtomicLong budget = new AtomicLong(left);
                pass(from, onward, budget);
                pass(onward, from, budget);
            }
        });
    }

    int port() {
        return listener.getLocalPort();
    }

    /** Connections are cut after a random number of bytes from now on. */
    void cutAfter(Random random, int bytesMax) {
        this.bytesMax = bytesMax;
        this.random = random;
        cutAll();
    }

    /** Those that come from now on are not cut. */
    void cutNoMore() {
        random = null;
        cutAll();
    }

    int cuts() {
        return cuts.get();
    }

    /** Bytes that were passed on, in both directions. */
    long bytes() {
        return bytes.get();
    }

    private void cutAll() {
        sockets.forEach(Wire::end);
        sockets.clear();
    }

    private record Piece(byte[] bytes, long dueNanos) {}

    private void pass(Socket from, Socket to, AtomicLong budget) {
        ArrayDeque<Piece> underway = new ArrayDeque<>();
        boolean[] ended = new boolean[1];
        thread(() -> {
            try (InputStream in = from.getInputStream()) {
                byte[] buffer = new byte[16_384];
                for (int length; (length = in.read(buffer)) >= 0; ) {
                    long left = budget.addAndGet(-length);
                    int passed = (int) Math.max(0, left < 0 ? length + left : length);
                    byte[] piece = java.util.Arrays.copyOf(buffer, passed);
                    synchronized (underway) {
                        underway.add(new Piece(piece, System.nanoTime() + delayNanos));
                        underway.notifyAll();
                    }
                    if (left <= 0) {
                        cuts.incrementAndGet();
                        break;
                    }
                }
            } finally {
                synchronized (underway) {
                    ended[0] = true;
                    underway.notifyAll();
                }
            }
        });
        thread(() -> {
            try (OutputStream out = to.getOutputStream()) {
                while (true) {
                    Piece piece;
                    synchronized (underway) {
                        while (underway.isEmpty() && !ended[0]) {
                            underway.wait();
                        }
                        piece = underway.poll();
                    }
                    if (piece == null) {
                        break;
                    }
                    long nanos = piece.dueNanos() - System.nanoTime();
                    if (nanos > 0) {
                        Thread.sleep(nanos / 1_000_000, (int) (nanos % 1_000_000));
                    }
                    out.write(piece.bytes());
                    bytes.addAndGet(piece.bytes().length);
                }
            } finally {
                end(from);
                end(to);
            }
        });
    }

    private interface Work {
        void run() throws Exception;
    }

    private static void thread(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception ended) {
                // A cut connection ends that way.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private static void end(Socket socket) {
        try {
            socket.close();
        } catch (IOException gone) {
            // It is closed already.
        }
    }

    @Override
    public void close() throws IOException {
        listener.close();
        cutAll();
    }
}

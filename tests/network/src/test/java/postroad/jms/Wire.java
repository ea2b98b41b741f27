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

/**
 * The network between two brokers: passes bytes on, late and slowly if it is told to; cuts connections, stalls as one does that
 * loses segments, and leaves connections half open.
 */
final class Wire implements AutoCloseable {
    private final ServerSocket listener = new ServerSocket(0, 16, InetAddress.getLoopbackAddress());
    private final Set<Socket> sockets = ConcurrentHashMap.newKeySet();
    private final AtomicInteger cuts = new AtomicInteger();
    private final AtomicLong bytes = new AtomicLong();
    private final long delayNanos;
    private final long bytesPerSecond;
    /** Connections that began before this are half open: they stay, and nothing passes. */
    private volatile long openSinceNanos = System.nanoTime();
    private volatile long stalledUntilNanos = System.nanoTime();
    private volatile boolean holdsAnswers;
    private volatile boolean refuses;
    private volatile Random random;
    private volatile int bytesMax;

    Wire(int to) throws IOException {
        this(to, 0);
    }

    /** To this port of the loopback interface; each byte takes so long one way. */
    Wire(int to, long delayMillis) throws IOException {
        this(to, delayMillis, Long.MAX_VALUE);
    }

    /** As the other one, and each direction of a connection passes so many bytes in a second. */
    Wire(int to, long delayMillis, long bytesPerSecond) throws IOException {
        this.bytesPerSecond = bytesPerSecond;
        delayNanos = delayMillis * 1_000_000;
        thread(() -> {
            while (!listener.isClosed()) {
                Socket from = listener.accept();
                Socket onward = refuses ? null : connected(to);
                if (onward == null) {
                    end(from);
                    continue;
                }
                from.setTcpNoDelay(true);
                onward.setTcpNoDelay(true);
                sockets.add(from);
                sockets.add(onward);
                Random cutting = random;
                long left = cutting == null ? Long.MAX_VALUE : 1 + cutting.nextInt(bytesMax);
                AtomicLong budget = new AtomicLong(left);
                long beganNanos = System.nanoTime();
                pass(from, onward, budget, beganNanos, false);
                pass(onward, from, budget, beganNanos, true);
            }
        });
    }

    /** A connection to the port; {@code null} if its broker is down. */
    private static Socket connected(int to) {
        try {
            return new Socket(InetAddress.getLoopbackAddress(), to);
        } catch (IOException down) {
            return null;
        }
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

    /** All connections that are there now. */
    void cut() {
        cuts.incrementAndGet();
        cutAll();
    }

    /** The network is gone, as long as this is not changed. */
    void refuse(boolean refuses) {
        this.refuses = refuses;
        cutAll();
    }

    /** Nothing passes for so long, and then all that was sent meanwhile. */
    void stall(long millis) {
        stalledUntilNanos = System.nanoTime() + millis * 1_000_000;
    }

    /** Whether nothing comes back from the port, as long as this is not changed. */
    void holdAnswers(boolean holds) {
        holdsAnswers = holds;
    }

    /** What is sent over the connections that are there now is lost, and neither end is told. */
    void leaveHalfOpen() {
        openSinceNanos = System.nanoTime();
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

    private void pass(Socket from, Socket to, AtomicLong budget, long beganNanos, boolean isBack) {
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
                    sleepUntil(piece.dueNanos());
                    sleepUntil(stalledUntilNanos);
                    while (isBack && holdsAnswers) {
                        Thread.sleep(5);
                    }
                    if (beganNanos - openSinceNanos < 0) {
                        continue;
                    }
                    out.write(piece.bytes());
                    bytes.addAndGet(piece.bytes().length);
                    if (bytesPerSecond != Long.MAX_VALUE) {
                        sleepUntil(System.nanoTime() + piece.bytes().length * 1_000_000_000L / bytesPerSecond);
                    }
                }
            } finally {
                end(from);
                end(to);
            }
        });
    }

    private static void sleepUntil(long dueNanos) throws InterruptedException {
        long nanos = dueNanos - System.nanoTime();
        if (nanos > 0) {
            Thread.sleep(nanos / 1_000_000, (int) (nanos % 1_000_000));
        }
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

package postroad.jms;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Clients that run at the same time, each in a thread of its own; the first failure is the test's. */
final class Clients implements AutoCloseable {
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final List<Future<?>> running = new ArrayList<>();

    <T> Future<T> run(Callable<T> client) {
        Future<T> future = threads.submit(client);
        running.add(future);
        return future;
    }

    /** Waits for all clients started so far. */
    void join(long seconds) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        for (Future<?> client : running) {
            try {
                client.get(Math.max(0, end - System.nanoTime()), TimeUnit.NANOSECONDS);
            } catch (ExecutionException failed) {
                throw new AssertionError("a client failed: " + failed.getCause(), failed.getCause());
            } catch (TimeoutException late) {
                throw new AssertionError("clients were still busy after " + seconds + " s", late);
            }
        }
        running.clear();
    }

    @Override
    public void close() {
        threads.shutdownNow();
    }
}

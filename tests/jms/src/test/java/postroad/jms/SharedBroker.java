package postroad.jms;

import static org.junit.jupiter.api.Assertions.fail;

import java.io.IOException;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * The broker that most tests use: the one at {@code -Dbroker.url}, or one started for this whole run.
 *
 * <p>If it dies, the test that was running fails with the broker's last words, and the next test gets
 * a fresh one, so that one crash does not hide everything after it. (Classes run side by side: a test of another
 * class that ran at that moment may be blamed, too.)
 */
final class SharedBroker implements BeforeEachCallback, AfterEachCallback {
    /** What other brokers are told for the same tests: bench/peers/activemq.xml. */
    private static final String CONFIGURATION = """
            [[policy]]
            destination = "queue://advised.>"
            advisories = ["delivered", "consumed", "no-consumer"]
            [[policy]]
            destination = "topic://advised.>"
            advisories = ["delivered", "consumed", "no-consumer"]
            [[policy]]
            destination = "queue://advised.fast.>"
            advisories = ["fast-producer"]
            messages_max = 1
            [[composite]]
            address = "queue://forwarded.queue"
            targets = [{ destination = "queue://forwarded.a" }, { destination = "topic://forwarded.t" }]
            [[composite]]
            address = "topic://forwarded.topic"
            targets = [{ destination = "queue://forwarded.b" }]
            forward_only = false
            """;

    private static volatile Broker broker;

    /** True if the tests may not stop, kill or restart the broker. */
    static boolean isExternal() {
        return System.getProperty("broker.url") != null;
    }

    static String url() {
        return isExternal() ? System.getProperty("broker.url") : broker.url();
    }

    /** Where AMQP is spoken; {@code -Dbroker.amqp} with {@code -Dbroker.url}. */
    static String amqpUrl() {
        return isExternal() ? System.getProperty("broker.amqp", "amqp://127.0.0.1:5672") : broker.amqpUrl();
    }

    @Override
    public void beforeEach(ExtensionContext context) throws Exception {
        if (!isExternal()) {
            ensureAlive(context);
        }
    }

    private static synchronized void ensureAlive(ExtensionContext context) throws Exception {
        if (broker == null) {
            context.getRoot().getStore(ExtensionContext.Namespace.GLOBAL)
                    .put(SharedBroker.class, (AutoCloseable) SharedBroker::end);
        }
        if (broker == null || !broker.isAlive()) {
            broker = Broker.launch("shared", CONFIGURATION);
        }
    }

    @Override
    public void afterEach(ExtensionContext context) {
        Broker used = broker;
        if (!isExternal() && !used.isAlive()) {
            fail("the broker died during this test: " + used.obituary());
        }
    }

    private static void end() throws IOException, InterruptedException {
        if (broker == null || !broker.isAlive()) {
            return;
        }
        int exitCode = broker.stop();
        if (exitCode != 0) {
            throw new AssertionError("the broker must end with exit code 0 after SIGTERM: " + broker.obituary());
        }
        broker.close();
    }
}

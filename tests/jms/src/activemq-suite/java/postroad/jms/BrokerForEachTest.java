package postroad.jms;

import java.io.IOException;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;

/** Each test has a broker with nothing in it, as it would have made one in its own process; nothing it sent reaches the next. */
public final class BrokerForEachTest implements TestExecutionListener {
    /** Where the broker of the running test is: {@code vm:} leads there. */
    public static volatile String url;

    private Broker broker;

    @Override
    public void executionStarted(TestIdentifier test) {
        if (!test.isTest()) {
            return;
        }
        try {
            broker = Broker.launch("suite");
            url = broker.url();
        } catch (IOException | InterruptedException failure) {
            throw new IllegalStateException("no broker for " + test.getDisplayName(), failure);
        }
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        if (!test.isTest() || broker == null) {
            return;
        }
        boolean isAlive = broker.isAlive();
        if (!isAlive) {
            System.out.println("FAILED activemq-suite: " + test.getDisplayName() + ": " + broker.obituary());
        }
        try {
            broker.close();
        } catch (IOException | InterruptedException failure) {
            throw new IllegalStateException("the broker of " + test.getDisplayName(), failure);
        } finally {
            url = null;
        }
    }
}

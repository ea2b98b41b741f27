package postroad.cluster;

import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Whether the test that runs has passed: only then the directories of its nodes are removed. */
public final class Outcome implements BeforeEachCallback, AfterTestExecutionCallback {
    private static volatile boolean passed;

    static boolean hasPassed() {
        return passed;
    }

    @Override
    public void beforeEach(ExtensionContext context) {
        passed = false;
    }

    @Override
    public void afterTestExecution(ExtensionContext context) {
        passed = context.getExecutionException().isEmpty();
    }
}

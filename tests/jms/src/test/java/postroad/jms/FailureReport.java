package postroad.jms;

import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.TestWatcher;

/** Prints one line for each failed case, with the rule and the parameters, which Maven's summary leaves out. */
final class FailureReport implements TestWatcher {
    @Override
    public void testFailed(ExtensionContext context, Throwable cause) {
        StringBuilder path = new StringBuilder(context.getDisplayName());
        context.getParent().ifPresent(parent -> prepend(parent, path));
        System.out.println("FAILED " + System.getProperty("jms.client") + ": "
                + context.getRequiredTestClass().getSimpleName() + "." + context.getRequiredTestMethod().getName()
                + ": " + path + ": " + cause);
    }

    private static void prepend(ExtensionContext context, StringBuilder path) {
        if (context.getParent().isPresent()) {
            path.insert(0, context.getDisplayName() + " > ");
            prepend(context.getParent().get(), path);
        }
    }
}

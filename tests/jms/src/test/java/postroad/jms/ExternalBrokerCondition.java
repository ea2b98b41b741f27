package postroad.jms;

import java.lang.reflect.AnnotatedElement;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Skips what cannot or should not run against a broker that somebody else started. */
final class ExternalBrokerCondition implements ExecutionCondition {
    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
        AnnotatedElement element = context.getElement().orElse(null);
        if (element == null || !SharedBroker.isExternal()) {
            return ConditionEvaluationResult.enabled("the tests start the broker themselves");
        }
        if (element.isAnnotationPresent(NeedsOwnBroker.class)) {
            return ConditionEvaluationResult.disabled("it must restart or kill the broker, and broker.url is given");
        }
        PostroadOnly only = element.getAnnotation(PostroadOnly.class);
        return only == null
                ? ConditionEvaluationResult.enabled("any broker will do")
                : ConditionEvaluationResult.disabled("holds for Postroad only: " + only.value());
    }
}

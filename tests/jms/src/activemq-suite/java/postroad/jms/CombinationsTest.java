package postroad.jms;

import java.util.Collections;
import java.util.List;
import junit.framework.Test;
import junit.framework.TestSuite;
import org.apache.activemq.JMSConsumerTest;
import org.apache.activemq.JMSXAConsumerTest;
import org.apache.activemq.JmsQueueBrowserTest;
import org.apache.activemq.JmsRedeliveredTest;
import org.apache.activemq.RedeliveryPolicyTest;

/** Classes of ActiveMQ that make their tests themselves, of which single ones are {@link LeftOut}: JUnit can only take all of them, or none. */
public final class CombinationsTest {
    public static Test suite() throws Exception {
        TestSuite all = new TestSuite("combinations");
        List.of(JmsRedeliveredTest.suite(), JMSConsumerTest.suite(), JMSXAConsumerTest.suite(), JmsQueueBrowserTest.suite(),
                new TestSuite(RedeliveryPolicyTest.class)).forEach(test -> add(all, test));
        return all;
    }

    private static void add(TestSuite all, Test test) {
        if (test instanceof TestSuite suite) {
            Collections.list(suite.tests()).forEach(inner -> add(all, inner));
        } else if (LeftOut.reason(test.toString()) == null) {
            all.addTest(test);
        }
    }
}

package postroad.jms;

import org.junit.jupiter.api.DisplayName;

/** The same where targets and dead-letter queues live in several partitions, on two cores. */
@DisplayName("Redelivery by routes over partitions")
class PartitionedRouteRedeliveryTest extends RouteRedeliveryTest {
    @Override
    String configuration() {
        return "[runtime]\npartitions = 4\ncores = 2\n";
    }
}

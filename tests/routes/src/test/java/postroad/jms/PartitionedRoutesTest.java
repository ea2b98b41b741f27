package postroad.jms;

import org.junit.jupiter.api.DisplayName;

/** The same where targets live in several partitions, on two cores. */
@DisplayName("Routes over partitions")
class PartitionedRoutesTest extends RoutesTest {
    @Override
    String configuration() {
        return "[runtime]\npartitions = 4\ncores = 2\n";
    }
}

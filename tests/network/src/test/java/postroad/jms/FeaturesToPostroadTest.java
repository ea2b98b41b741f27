package postroad.jms;

import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.Topic;

import org.apache.activemq.ActiveMQConnectionFactory;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** The features over a link between two Postroads. */
@Tag("postroad")
class FeaturesToPostroadTest extends FeaturesOverLink {
    private Broker east;

    @Override
    void startPeer() throws Exception {
        east = Broker.launch("features-east");
    }

    @Override
    void stopPeer() throws Exception {
        east.close();
    }

    @Override
    String peerUrl() {
        return east.url();
    }

    @Override
    boolean peerHasDemand(Destination destination) throws Exception {
        String name = destination instanceof Queue queue ? "queue://" + queue.getQueueName() : "topic://" + ((Topic) destination).getTopicName();
        return hasDemand(east, name);
    }
}

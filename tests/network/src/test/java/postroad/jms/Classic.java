package postroad.jms;

import java.net.URI;
import java.util.function.Consumer;

import jakarta.jms.Destination;

import org.apache.activemq.broker.BrokerPlugin;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.broker.SslContext;
import org.apache.activemq.broker.region.RegionBroker;
import org.apache.activemq.broker.region.TopicRegion;
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.network.NetworkConnector;

/** An unmodified ActiveMQ Classic broker in this process, without a store of its own. */
final class Classic implements AutoCloseable {
    private final BrokerService broker = new BrokerService();

    /** Starts a broker that listens on a free port of the loopback interface. */
    Classic(String name, BrokerPlugin... plugins) throws Exception {
        this(name, null, "tcp://127.0.0.1:0", plugins);
    }

    /** As the other one, by TLS if there is a context for it. */
    Classic(String name, SslContext tls, String listensAt, BrokerPlugin... plugins) throws Exception {
        broker.setBrokerName(name);
        broker.setPersistent(false);
        broker.setUseJmx(false);
        broker.setUseShutdownHook(false);
        broker.setAdvisorySupport(true);
        broker.setPlugins(plugins);
        broker.setSslContext(tls);
        broker.addConnector(listensAt);
        broker.start();
        broker.waitUntilStarted();
    }

    /** Opens a network connector to the other broker and does not wait for it. */
    NetworkConnector bridgeTo(String url, Consumer<NetworkConnector> options) throws Exception {
        NetworkConnector connector = broker.addNetworkConnector(new URI("static:(" + url + ")?initialReconnectDelay=200&useExponentialBackOff=false"));
        connector.setName("to-postroad");
        options.accept(connector);
        broker.startNetworkConnector(connector, null);
        return connector;
    }

    /** Starts a connector that was stopped as one of a new process: with the topics that are known by now. */
    void restart(NetworkConnector connector) throws Exception {
        connector.setDurableDestinations(null);
        broker.startNetworkConnector(connector, null);
    }

    String url() throws Exception {
        return broker.getTransportConnectors().get(0).getPublishableConnectString();
    }

    /** Whether a bridge of this connector is established. */
    static boolean isBridged(NetworkConnector connector) {
        return connector.activeBridges().stream().anyMatch(bridge -> bridge.getRemoteBrokerName() != null);
    }

    /** Messages that wait in a queue here. */
    long waiting(String queue) throws Exception {
        var destination = broker.getDestination(new ActiveMQQueue(queue));
        return destination.getDestinationStatistics().getMessages().getCount();
    }

    /** Consumers of a destination here, those of bridges among them. */
    long consumers(Destination of) throws Exception {
        var destination = broker.getDestination(ActiveMQDestination.transform(of));
        return destination.getDestinationStatistics().getConsumers().getCount();
    }

    /** Whether a bridge has a durable subscription of a topic here. */
    boolean hasBridgedSubscription(String topic) throws Exception {
        TopicRegion region = (TopicRegion) ((RegionBroker) broker.getRegionBroker()).getTopicRegion();
        return region.getDurableSubscriptions().entrySet().stream()
                .anyMatch(entry -> entry.getKey().getSubscriptionName().startsWith("NC-DS_")
                        && entry.getValue().getConsumerInfo().getDestination().getPhysicalName().equals(topic));
    }

    @Override
    public void close() throws Exception {
        broker.stop();
        broker.waitUntilStopped();
    }
}

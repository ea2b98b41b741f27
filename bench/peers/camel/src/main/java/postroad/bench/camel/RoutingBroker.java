package postroad.bench.camel;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.broker.region.policy.PolicyEntry;
import org.apache.activemq.broker.region.policy.PolicyMap;

import org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.component.jms.JmsComponent;
import org.apache.camel.impl.DefaultCamelContext;
import org.apache.camel.model.ProcessorDefinition;
import org.messaginghub.pooled.jms.JmsPoolConnectionFactory;

/**
 * ActiveMQ Classic with one Camel route in its process: arguments are the directory, the port, the number of targets, and {@code all} or
 * {@code one}. Prints {@code ready}; a line on standard input is answered with the number of messages routed so far, its end ends the process.
 */
public final class RoutingBroker {
    /** As many as a busy route of such brokers has. */
    private static final int CONSUMERS = 10;

    private RoutingBroker() {}

    public static void main(String[] arguments) throws Exception {
        File data = new File(arguments[0]);
        int port = Integer.parseInt(arguments[1]);
        int targets = Integer.parseInt(arguments[2]);
        boolean all = arguments[3].equals("all");
        BrokerService broker = new BrokerService();
        broker.setBrokerName("routes");
        broker.setUseJmx(false);
        broker.setDataDirectoryFile(data);
        KahaDBPersistenceAdapter store = new KahaDBPersistenceAdapter();
        store.setDirectory(new File(data, "kahadb"));
        broker.setPersistenceAdapter(store);
        broker.getSystemUsage().getMemoryUsage().setPercentOfJvmHeap(70);
        PolicyEntry policy = new PolicyEntry();
        policy.setQueue(">");
        PolicyMap policies = new PolicyMap();
        policies.setDefaultEntry(policy);
        broker.setDestinationPolicy(policies);
        broker.addConnector("tcp://127.0.0.1:" + port + "?maximumConnections=1000&wireFormat.maxFrameSize=104857600");
        broker.start();
        broker.waitUntilStarted();

        AtomicLong routed = new AtomicLong();
        JmsPoolConnectionFactory pool = new JmsPoolConnectionFactory();
        pool.setConnectionFactory(new ActiveMQConnectionFactory("vm://routes?create=false"));
        pool.setMaxConnections(8);
        DefaultCamelContext camel = new DefaultCamelContext();
        JmsComponent jms = JmsComponent.jmsComponentAutoAcknowledge(pool);
        jms.getConfiguration().setConcurrentConsumers(CONSUMERS);
        // The cache of Spring's listener containers, with which a pool of sessions gets along.
        jms.getConfiguration().setCacheLevelName("CACHE_CONSUMER");
        camel.addComponent("activemq", jms);
        camel.addRoutes(new RouteBuilder() {
            @Override
            public void configure() {
                ProcessorDefinition<?> route = from("activemq:queue:postroad.bench.>").setHeader("shard", constant("0"));
                if (all) {
                    String[] uris = new String[targets];
                    for (int target = 0; target < targets; target++) {
                        uris[target] = "activemq:queue:out." + target;
                    }
                    route = route.multicast().to(uris).end();
                } else {
                    for (int target = 0; target < targets; target++) {
                        route.filter(header("shard").isEqualTo(Integer.toString(target))).to("activemq:queue:out." + target).end();
                    }
                }
                route.process(exchange -> routed.incrementAndGet());
            }
        });
        camel.start();
        System.out.println("ready");
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        while (questions.readLine() != null) {
            System.out.println(routed.get());
        }
        // The directory goes with the process.
        Runtime.getRuntime().halt(0);
    }
}

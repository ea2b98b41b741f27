package postroad.jms;

import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Networks of Postroads whose brokers are killed, and whose links are cut, stalled, slow and half open. */
@Tag("postroad")
class FaultyNetworkTest {
    /** Ten minutes by night. */
    private static final int SECONDS = Integer.getInteger("network.seconds", 20);
    private static final long PATIENCE_SECONDS = 60;
    private static final int BODY_BYTES = 1024;

    /** A peer that says nothing for so long is gone. */
    private static final String QUICK = "[openwire]\nmax_inactivity_ms = 3000\n";

    private static String bridge(String name, int port, int links) {
        return "[[bridge]]\nname = '" + name + "'\nto = ['tcp://127.0.0.1:" + port + "']\nduplex = true\nlinks = " + links
                + "\nmessage_ttl = -1\nconsumer_ttl = -1\ninclude = ['queue://work']\nretry_ms = 50\nretry_max_ms = 200\n";
    }

    private static int port(Broker broker) {
        return URI.create(broker.url()).getPort();
    }

    private static void awaitLinks(Broker broker, long links) throws Exception {
        NetworkTest.eventually(links + " links", () ->
                broker.command("ctl", "bridges", "--json").lines().filter(row -> row.contains("\"state\":\"linked\"")).count() >= links);
    }

    @Test
    void killedBrokersAndCutLinksLoseAndDoubleNothing() throws Exception {
        try (Broker a = Broker.launch("faulty-a");
                Wire ba = new Wire(port(a));
                Broker b = Broker.launch("faulty-b", bridge("ba", ba.port(), 2));
                Wire cb = new Wire(port(b));
                Wire ca = new Wire(port(a));
                Broker c = Broker.launch("faulty-c", bridge("cb", cb.port(), 1) + bridge("ca", ca.port(), 1))) {
            awaitLinks(b, 3);
            awaitLinks(c, 2);
            List<Broker> brokers = List.of(a, b, c);
            List<Wire> wires = List.of(ba, cb, ca);
            Random random = new Random(42);
            try (RoamingConsumers load = new RoamingConsumers(brokers, 3, BODY_BYTES)) {
                long until = System.nanoTime() + SECONDS * 1_000_000_000L;
                while (System.nanoTime() < until && !load.isFailed()) {
                    Thread.sleep(500 + random.nextInt(1000));
                    if (random.nextInt(3) == 0) {
                        wires.get(random.nextInt(wires.size())).cut();
                        continue;
                    }
                    Broker victim = brokers.get(random.nextInt(brokers.size()));
                    victim.kill();
                    Thread.sleep(random.nextInt(300));
                    victim.start();
                }
                load.expectAllOnce(PATIENCE_SECONDS);
            }
        }
    }

    @Test
    void twoRegionsWithASlowNetworkBetweenThemLoseAndDoubleNothing() throws Exception {
        List<AutoCloseable> parts = new ArrayList<>();
        List<Broker> brokers = new ArrayList<>();
        List<Wire> wide = new ArrayList<>();
        try {
            for (String region : List.of("east", "west")) {
                int first = brokers.size();
                for (int number = 0; number < 3; number++) {
                    StringBuilder bridges = new StringBuilder(QUICK);
                    for (int other = first; other < brokers.size(); other++) {
                        bridges.append(bridge(region + number + "-" + (other - first), port(brokers.get(other)), 1));
                    }
                    // Two brokers of the second region have a link to the first one: 20 ms one way, 2 MB/s.
                    if (first > 0 && number < 2) {
                        Wire wire = new Wire(port(brokers.get(number)), 20, 2_000_000);
                        parts.add(wire);
                        wide.add(wire);
                        bridges.append(bridge("wide" + number, wire.port(), 2));
                    }
                    Broker broker = Broker.launch("region-" + region + number, bridges.toString());
                    parts.add(broker);
                    brokers.add(broker);
                }
            }
            awaitLinks(brokers.get(3), 4);
            awaitLinks(brokers.get(4), 4);
            Random random = new Random(7);
            try (RoamingConsumers load = new RoamingConsumers(brokers, 4, BODY_BYTES)) {
                long until = System.nanoTime() + SECONDS * 1_000_000_000L;
                while (System.nanoTime() < until && !load.isFailed()) {
                    Thread.sleep(500 + random.nextInt(1500));
                    Wire wire = wide.get(random.nextInt(wide.size()));
                    switch (random.nextInt(4)) {
                        case 0 -> wire.cut();
                        case 1 -> wire.leaveHalfOpen();
                        default -> wire.stall(200 + random.nextInt(800));
                    }
                }
                load.expectAllOnce(PATIENCE_SECONDS);
            }
        } finally {
            for (int at = parts.size() - 1; at >= 0; at--) {
                parts.get(at).close();
            }
        }
    }
}

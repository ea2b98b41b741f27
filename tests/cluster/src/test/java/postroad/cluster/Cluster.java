package postroad.cluster;

import java.io.IOException;
import java.net.BindException;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.IntFunction;
import java.util.function.Supplier;
import java.util.stream.IntStream;

/** Three nodes, each with a directory and ports of its own; and further ones that join. */
final class Cluster implements AutoCloseable {
    static final long WITHIN_MS = 40_000;
    /** Below the ports that the system gives to clients' ends, and above those of tests/http. */
    private static final int FIRST_PORT = 24_000;
    private static final int PORTS = 8_000;

    final List<Node> nodes = new ArrayList<>();
    /** A failure of a client, which ends every wait. */
    private final Supplier<Throwable> failure;
    private final Path directory;
    private final List<String> seeds;
    private final List<DatagramSocket> reservations = new ArrayList<>();

    /** The network between the nodes; {@code null} if they reach each other directly. */
    final Links links;

    Cluster(String name, Supplier<Throwable> failure) throws IOException {
        this(name, failure, null, node -> "", node -> { });
    }

    /** A cluster whose nodes start on disks that this prepares. */
    static Cluster onDisks(String name, Supplier<Throwable> failure, Disks disks) throws IOException {
        return new Cluster(name, failure, null, node -> "", disks);
    }

    /** Prepares the data directory of a node that has not started yet. */
    interface Disks {
        void prepare(Node node) throws IOException;
    }

    /** A cluster whose nodes have this configuration, by their numbers, besides that of all. */
    Cluster(String name, IntFunction<String> configurations) throws IOException {
        this(name, () -> null, null, configurations, node -> { });
    }

    /** A cluster whose nodes have this configuration besides that of all, and are prepared before they start. */
    Cluster(String name, IntFunction<String> configurations, Disks disks) throws IOException {
        this(name, () -> null, null, configurations, disks);
    }

    /** A cluster whose links can be cut, and whose nodes start on disks that this prepares. */
    static Cluster withLinks(String name, Supplier<Throwable> failure, Disks disks) throws IOException {
        return new Cluster(name, failure, new Links(), node -> "", disks);
    }

    /** A cluster whose links record their bytes, and whose nodes have this configuration below {@code [cluster]}. */
    static Cluster recorded(String name, IntFunction<String> configurations) throws IOException {
        return new Cluster(name, () -> null, Links.recording(), configurations, node -> { });
    }

    private Cluster(String name, Supplier<Throwable> failure, Links links, IntFunction<String> configurations, Disks disks)
            throws IOException {
        this.failure = failure;
        this.links = links;
        directory = Files.createTempDirectory(Files.createDirectories(Path.of("target", "nodes").toAbsolutePath()), name + "-");
        int[][] ports = freePorts(3);
        seeds = IntStream.range(0, 3).mapToObj(node -> "127.0.0.1:" + ports[node][2]).toList();
        for (int node = 0; node < 3; node++) {
            if (links != null) {
                links.serve(node + 1, ports[node][2], ports[node][5]);
            }
            nodes.add(new Node(node + 1, directory, ports[node], seeds, links != null));
            nodes.get(node).configure(configurations.apply(node + 1));
            disks.prepare(nodes.get(node));
            nodes.get(node).start();
        }
    }

    /** Ports of nodes that stay theirs while they are down: no client's end gets them, and no other test. */
    private int[][] freePorts(int nodes) throws IOException {
        int[][] ports = new int[nodes][6];
        Random random = new Random();
        for (int[] ofNode : ports) {
            for (int port = 0; port < ofNode.length; port++) {
                while (ofNode[port] == 0) {
                    ofNode[port] = reserved(FIRST_PORT + random.nextInt(PORTS));
                }
            }
        }
        return ports;
    }

    /** The port, or 0 if another has it: a UDP socket there stands for the port until this cluster is closed. */
    private int reserved(int port) throws IOException {
        try {
            reservations.add(new DatagramSocket(port, InetAddress.getLoopbackAddress()));
            new ServerSocket(port, 1, InetAddress.getLoopbackAddress()).close();
            return port;
        } catch (BindException taken) {
            return 0;
        }
    }

    /** A further node of this name, which knows the first three, and is not started. */
    Node newcomer(String name) throws IOException {
        Node node = new Node(nodes.size() + 1, name, directory, freePorts(1)[0], seeds, false);
        nodes.add(node);
        return node;
    }

    /** A further node that knows this one alone. */
    Node newcomer(String name, Node known) throws IOException {
        Node node = new Node(nodes.size() + 1, name, directory, freePorts(1)[0], List.of(known.listen), false);
        nodes.add(node);
        return node;
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    void await(String event, Condition condition) throws Exception {
        long end = System.currentTimeMillis() + WITHIN_MS;
        while (!condition.holds()) {
            requireClients();
            if (end < System.currentTimeMillis()) {
                throw new AssertionError(event + " takes more than " + WITHIN_MS + " ms\n" + tails());
            }
            Thread.sleep(10);
        }
    }

    /** Fails if a client has failed. */
    void requireClients() {
        if (failure.get() != null) {
            throw new AssertionError("a client failed", failure.get());
        }
    }

    /** The ends of all logs. */
    String tails() {
        StringBuilder tails = new StringBuilder();
        try {
            for (Node node : nodes) {
                tails.append(node.tail());
            }
        } catch (IOException noLog) {
            tails.append(noLog);
        }
        return tails.toString();
    }

    Node named(String name) {
        return nodes.stream().filter(node -> node.name.equals(name)).findFirst().orElseThrow();
    }

    Node leader() throws Exception {
        return leader(null);
    }

    /** The leader, once it is another than this node. */
    Node leader(Node former) throws Exception {
        AtomicReference<Node> leader = new AtomicReference<>();
        await("a leader", () -> {
            for (Node node : nodes) {
                if (node != former && node.isAlive() && node.serves()) {
                    leader.set(node);
                }
            }
            return leader.get() != null;
        });
        return leader.get();
    }

    /** The nodes that follow this leader, once they say so. */
    List<Node> followers(Node leader) throws Exception {
        List<Node> followers = nodes.stream().filter(node -> node != leader && node.isAlive()).toList();
        for (Node node : followers) {
            await(node.name + " follows " + leader.name, () -> node.readiness().contains("follows " + leader.name));
        }
        return followers;
    }

    /** The leader, once all other nodes that run follow it: on a busy machine another one may lead meanwhile. */
    Node settled() throws Exception {
        AtomicReference<Node> settled = new AtomicReference<>();
        await("one node leads and the others follow it", () -> {
            List<Node> alive = nodes.stream().filter(Node::isAlive).toList();
            for (Node leader : alive) {
                if (leader.serves() && follow(alive, leader)) {
                    settled.set(leader);
                }
            }
            return settled.get() != null;
        });
        return settled.get();
    }

    private static boolean follow(List<Node> nodes, Node leader) throws InterruptedException {
        for (Node node : nodes) {
            if (node != leader && !node.readiness().contains("follows " + leader.name)) {
                return false;
            }
        }
        return true;
    }

    @Override
    public void close() throws InterruptedException, IOException {
        for (Node node : nodes) {
            node.destroy();
        }
        if (links != null) {
            links.close();
        }
        reservations.forEach(DatagramSocket::close);
        Outcome.leaves(directory);
    }
}

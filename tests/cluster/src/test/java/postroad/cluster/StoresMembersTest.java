package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.Session;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.regex.Pattern;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import postroad.cluster.Clients.Protocol;

/** Nodes that join, leave and replace others in a cluster with three stores. */
@Timeout(240)
@DisplayName("members of several stores: one order changes them in all stores, while clients of each send")
class StoresMembersTest {
    private static final int STORES = 3;
    private static final Pattern MEMBER = Pattern.compile("\\{[^{}]*\"node\":\"([^\"]+)\"[^{}]*\"number\":(\\d+)[^{}]*\\}");

    private final Clients clients = new Clients(queue -> queue.replaceAll("\\..*", ".app"));
    private Path users;
    private Cluster cluster;

    @BeforeEach
    void startNodes() throws Exception {
        users = StoresTest.users();
        cluster = new Cluster("stores-members", node -> StoresTest.configuration(users));
    }

    @AfterEach
    void endNodes() throws Exception {
        clients.abandon();
        cluster.close();
    }

    private Node newcomer(String name) throws Exception {
        Node node = cluster.newcomer(name);
        node.configure(StoresTest.configuration(users));
        return node;
    }

    private void startClients() throws Exception {
        List<Node> first = List.copyOf(cluster.nodes);
        clients.start(Protocol.OPENWIRE, "north.members", first);
        clients.start(Protocol.OPENWIRE, "south.members", first);
        clients.start(Protocol.AMQP, "east.members", first);
        awaitSends();
    }

    private void awaitSends() throws Exception {
        int[] before = clients.sends();
        cluster.await("sends", () -> clients.haveSent(10, before) || clients.ledger.failure.get() != null);
        assertEquals(null, clients.ledger.failure.get());
    }

    private static String[] words(String... order) {
        List<String> words = new ArrayList<>(List.of("cluster"));
        words.addAll(List.of(order));
        return words.toArray(String[]::new);
    }

    private void order(String wanted, String... order) throws Exception {
        String printed = cluster.leader().ctl(words(order));
        assertTrue(printed.contains(wanted), () -> printed + ", expected: " + wanted);
    }

    private void awaitAsking(Node newcomer) throws Exception {
        cluster.await(newcomer.name + " asks", () -> cluster.leader().ctl("cluster").contains("postroad ctl cluster join " + newcomer.name));
    }

    /** The members of a store with their numbers, as a node knows them. */
    private static TreeSet<String> members(Node node, int store) throws Exception {
        TreeSet<String> members = new TreeSet<>();
        var rows = MEMBER.matcher(node.ctlOfStore(store, "cluster", "--json"));
        while (rows.find()) {
            members.add(rows.group(1) + "=" + rows.group(2));
        }
        return members;
    }

    /** All stores have these nodes, under the same numbers. */
    private void assertMembers(Node asked, String... names) throws Exception {
        TreeSet<String> first = members(asked, 1);
        assertEquals(new TreeSet<>(List.of(names)).toString(), new TreeSet<>(first.stream().map(it -> it.replaceAll("=.*", "")).toList()).toString());
        for (int store = 2; store <= STORES; store++) {
            int number = store;
            cluster.await("the same members in store " + store, () -> members(asked, number).equals(first));
        }
    }

    private static void kill(Node node) throws Exception {
        node.signal("KILL");
        node.awaitEnd();
    }

    @Test
    @DisplayName("a fourth joins though it is killed half-way, the leader of store 2 leaves, then that of store 1")
    void aFourthJoinsAndOthersLeave() throws Exception {
        Node fourth = newcomer("n4");
        cluster.leader();
        cluster.await("leaders on three nodes", () -> new TreeSet<>(StoresTest.leaders(cluster.nodes.get(0)).values()).size() == 3);
        startClients();
        order("n4 does not ask to join", "join", "n4");
        Node second = cluster.named(StoresTest.leaders(cluster.nodes.get(0)).get(2));
        String elsewhere = second.ctlOfStore(2, words("join", "n4"));
        assertTrue(elsewhere.contains("this is store 2: give the order to the leader of store 1"), elsewhere);

        fourth.start();
        awaitAsking(fourth);
        Node first = cluster.leader();
        CompletableFuture<String> joined = first.ctlLater(words("join", "n4"));
        cluster.await("one store has it", () -> first.ctl("cluster").matches("(?s).*n4 has (not asked to join it yet|no vote yet).*"));
        kill(fourth);
        awaitSends();
        fourth.start();
        String printed = joined.get();
        assertTrue(printed.contains("n4 votes after"), printed + "\n" + cluster.tails());
        System.out.println("stores: " + printed);
        assertMembers(fourth, "n1", "n2", "n3", "n4");
        String shown = cluster.leader().ctl("cluster");
        assertEquals(STORES, shown.lines().filter(line -> line.endsWith("complete")).count(), shown);
        awaitSends();

        Node leaves = cluster.nodes.stream().filter(node -> node != fourth && node.isAlive()).filter(this::leadsAnyButFirst).findFirst().orElseThrow();
        clients.takePausesMs();
        order(leaves.name + " has left", "leave", leaves.name);
        awaitSends();
        List<Long> pauses = clients.takePausesMs();
        System.out.println("stores: pauses of producers while a leader of a further store leaves, ms: " + pauses);
        cluster.await("it says so", () -> leaves.readiness().contains(leaves.name + " was removed from the cluster"));
        assertTrue(leaves.hasLogged("this node hands leadership over, as it is to be removed"), leaves.tail());
        kill(leaves);
        awaitSends();

        Node last = cluster.leader();
        leavesOnceEnoughAreBack(last, fourth);
        Node next = cluster.leader(last);
        kill(last);
        awaitSends();
        assertMembers(next, cluster.nodes.stream().filter(Node::isAlive).map(node -> node.name).toArray(String[]::new));

        clients.stopSending();
        cluster.await("the last message", () -> clients.ledger.missing().isEmpty());
        clients.stop();
        System.out.println("stores: " + clients.ledger);
        clients.ledger.assertNothingLostOrDoubled();
    }

    /** The leader of store 1 is to leave, and another of three nodes ends as it hands over: the next leader says which votes are missing. */
    private void leavesOnceEnoughAreBack(Node leaves, Node ends) throws Exception {
        CompletableFuture<String> left;
        try (Connection connection = connect("north", leaves)) {
            Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
            var queue = session.createQueue("north.held");
            session.createProducer(queue).send(session.createTextMessage("held"));
            Message held = session.createConsumer(queue).receive(10_000);
            left = leaves.ctlLater(words("leave", leaves.name));
            // A client that has a message keeps the leader for two seconds.
            cluster.await("it is to be removed", () -> leaves.hasLogged("this node hands leadership over, as it is to be removed"));
            kill(ends);
            held.acknowledge();
        }
        Node next = cluster.leader(leaves);
        String wanted = "(?s).*node " + leaves.name + " waits: [^\n]*(it is still a member of|without it 1 of 2 votes reached, 2 needed).*";
        for (Node asked : List.of(next, leaves)) {
            cluster.await("the reason is said by " + asked.name, () -> asked.ctl("cluster").matches(wanted));
        }
        cluster.await("it is gone from no store without a majority", () -> next.ctl("cluster").contains("without it 1 of 2 votes reached, 2 needed"));
        ends.start();
        String printed = left.get();
        assertTrue(printed.contains(leaves.name + " has left"), printed + "\n" + cluster.tails());
    }

    private boolean leadsAnyButFirst(Node node) {
        try {
            var leaders = StoresTest.leaders(cluster.nodes.get(0));
            return leaders.entrySet().stream().anyMatch(led -> led.getKey() != 1 && led.getValue().equals(node.name))
                    && !leaders.get(1).equals(node.name);
        } catch (Exception failed) {
            throw new AssertionError(failed);
        }
    }

    @Test
    @DisplayName("a mirror takes the place of all others in all stores")
    void aMirrorTakesOver() throws Exception {
        Node mirror = newcomer("far");
        cluster.leader();
        mirror.start();
        awaitAsking(mirror);
        order("far mirrors the store after", "join", "far", "--mirror");
        for (String tenant : StoresTest.TENANTS) {
            try (Connection connection = connect(tenant, cluster.nodes.get(0))) {
                StoresTest.send(connection, tenant + ".kept", List.of("one", "two"));
            }
        }
        cluster.await("it has all stores", () -> {
            for (int store = 1; store <= STORES; store++) {
                if (!mirror.ctlOfStore(store, "cluster").matches("(?s).* mirror +1,2,3 +takes part.*")) {
                    return false;
                }
            }
            return true;
        });
        cluster.await("leaders of all stores", () -> StoresTest.leaders(cluster.leader()).size() == STORES);
        assertPromotionIsRefused(mirror);
        // One that has just started has not heard of any leader yet.
        kill(mirror);
        mirror.start();
        cluster.await("it answers", () -> !mirror.readiness().isEmpty());
        assertPromotionIsRefused(mirror);
        // A tenth of it would be enough for a vote.
        Thread.sleep(1000);
        for (Node node : cluster.nodes) {
            if (node != mirror) {
                kill(node);
            }
        }
        cluster.await("it reaches no leader", () -> mirror.readiness().contains("far is a mirror and reaches no leader"));
        // Each store notices the loss of its leader at the next message to it.
        cluster.await("it takes over", () -> mirror.ctl(words("promote", "far")).contains("far leads after"));
        for (String tenant : StoresTest.TENANTS) {
            try (Connection connection = connect(tenant, mirror)) {
                assertEquals(List.of("one", "two"), StoresTest.receive(connection, tenant + ".kept", 2), tenant);
            }
        }
    }

    private static void assertPromotionIsRefused(Node mirror) throws Exception {
        String answer = mirror.ctl(words("promote", mirror.name));
        assertTrue(answer.matches("(?s).*store \\d: \\S+ leads and is reached.*"), answer + "\n" + mirror.tail());
    }

    private static Connection connect(String tenant, Node node) throws Exception {
        String url = "failover:(" + node.url() + ")?timeout=20000";
        Connection connection = new ActiveMQConnectionFactory(url).createConnection(tenant + ".app", "secret of " + tenant + ".app");
        connection.start();
        return connection;
    }

    @Test
    @DisplayName("a node that never returns is replaced in all stores, and none may leave while a store needs it")
    void aLostNodeIsReplaced() throws Exception {
        Node fourth = newcomer("n4");
        cluster.leader();
        cluster.await("leaders on three nodes", () -> new TreeSet<>(StoresTest.leaders(cluster.nodes.get(0)).values()).size() == 3);
        startClients();
        Node leader = cluster.leader();
        Node lost = cluster.followers(leader).get(0);
        Node stays = cluster.followers(leader).get(1);
        kill(lost);
        cluster.await("the loss is noticed", () -> leader.ctl("cluster").contains(lost.name + " is not reached"));
        order("without " + stays.name + ", 1 of the other 2 nodes", "leave", stays.name);
        awaitSends();
        fourth.start();
        awaitAsking(fourth);
        order("n4 votes in place of " + lost.name, "replace", lost.name, "n4");
        awaitSends();
        assertMembers(fourth, leader.name, stays.name, "n4");
        kill(stays);
        awaitSends();
        lost.start();
        cluster.await("the lost node learns that it was removed", () -> lost.readiness().contains("was removed from the cluster"));
    }
}

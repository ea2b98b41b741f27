package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import postroad.cluster.Clients.Protocol;

/** Nodes that join, leave and replace others by order, under clients that are not told of it. */
@Timeout(150)
@DisplayName("members: nodes join, leave and are replaced while clients send")
class MembershipTest {
    private final Clients clients = new Clients();
    private Cluster cluster;

    @BeforeEach
    void startNodes() throws Exception {
        cluster = new Cluster("members", clients.ledger.failure::get);
    }

    @AfterEach
    void endNodes() throws Exception {
        clients.abandon();
        cluster.close();
    }

    private void startClients() throws Exception {
        clients.start(Protocol.OPENWIRE, "members.openwire", cluster.nodes);
        clients.start(Protocol.AMQP, "members.amqp", cluster.nodes);
        awaitSends();
    }

    private void awaitSends() throws Exception {
        int[] before = clients.sends();
        cluster.await("sends", () -> clients.haveSent(10, before));
    }

    private void endClients() throws Exception {
        clients.stopSending();
        cluster.await("the last message", () -> clients.ledger.missing().isEmpty());
        clients.stop();
        System.out.println("members: " + clients.ledger + "; longest pauses of producers, ms: " + clients.takePausesMs());
        clients.ledger.assertNothingLostOrDoubled();
    }

    /** The leader's answer to an order has this text. */
    private void order(String wanted, String... order) throws Exception {
        List<String> words = new ArrayList<>(List.of("cluster"));
        words.addAll(List.of(order));
        String printed = cluster.leader().ctl(words.toArray(String[]::new));
        assertTrue(printed.contains(wanted), () -> printed + ", expected: " + wanted);
    }

    /** A consumer has a message in its hands as the leader is told to leave: that waits until it is acknowledged, which counts. */
    private void theLeaderLeavesOnceAMessageIsAcknowledged(Node leader) throws Exception {
        String urls = String.join(",", cluster.nodes.stream().filter(Node::isAlive).map(Node::url).toList());
        try (Connection connection = new ActiveMQConnectionFactory("failover:(" + urls + ")?jms.checkForDuplicates=false").createConnection()) {
            connection.start();
            Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
            var queue = session.createQueue("members.held");
            session.createProducer(queue).send(session.createTextMessage("held"));
            MessageConsumer consumer = session.createConsumer(queue);
            Message held = consumer.receive(10_000);
            CompletableFuture<String> left = leader.ctlLater("cluster", "leave", leader.name);
            cluster.await("it is to be removed", () -> leader.hasLogged("this node hands leadership over, as it is to be removed"));
            cluster.await("the reason is said", () -> leader.ctl("cluster").contains("node " + leader.name + " waits: it leads, and hands over once"));
            Thread.sleep(500);
            held.acknowledge();
            String printed = left.get();
            assertTrue(printed.contains(leader.name + " has left"), printed);
            cluster.leader(leader);
            assertNull(consumer.receive(1000), "it was acknowledged before the leader left");
        }
    }

    /** A node that asked to join ends as it is admitted in place of another: the leader says that it waits for it. */
    private void aReplacementThatIsAwayIsSaidToBe(Node lost, Node replacement) throws Exception {
        Node leader = cluster.leader();
        kill(replacement);
        CompletableFuture<String> replaced = leader.ctlLater("cluster", "replace", lost.name, replacement.name);
        String reason = replacement.name + ", which replaces it, is not reached";
        cluster.await("the reason is said", () -> leader.ctl("cluster").contains("node " + lost.name + " waits: " + reason));
        assertTrue(leader.cluster().contains("\"waits\":\"" + reason + "\""), leader.cluster());
        replacement.start();
        String printed = replaced.get();
        assertTrue(printed.contains(replacement.name + " votes in place of " + lost.name), printed);
        assertFalse(leader.ctl("cluster").contains(" waits: "), "nothing waits any more");
    }

    private void awaitAsking(Node newcomer) throws Exception {
        Node leader = cluster.leader();
        cluster.await(newcomer.name + " asks", () -> leader.ctl("cluster").contains("asks to join: postroad ctl cluster join " + newcomer.name));
    }

    private static void kill(Node node) throws Exception {
        node.signal("KILL");
        node.awaitEnd();
    }

    @Test
    @DisplayName("a fourth joins, a follower leaves, then the leader, and the new one stays over a restart")
    void aFourthJoinsAndOthersLeave() throws Exception {
        Node fourth = cluster.newcomer("n4");
        Node namesake = cluster.newcomer("n2");
        startClients();
        order("n4 does not ask to join", "join", "n4");
        order("n2 is a node of the cluster already", "join", "n2");
        order("there is no node \"n9\"", "leave", "n9");
        namesake.start();
        cluster.await("a used name is refused", () -> namesake.hasLogged("the name n2 is that of the node at"));
        kill(namesake);

        fourth.start();
        awaitAsking(fourth);
        order("n4 votes after", "join", "n4");
        assertTrue(fourth.hasLogged("the store was filled by a copy"));
        awaitSends();
        cluster.await("four are balanced", () -> cluster.leader().ctl("cluster").contains("balanced: yes"));

        Node leader = cluster.leader();
        Node leaves = cluster.followers(leader).stream().filter(node -> node != fourth).findFirst().orElseThrow();
        order(leaves.name + " has left", "leave", leaves.name);
        cluster.await("it says so", () -> leaves.readiness().contains(leaves.name + " was removed from the cluster"));
        kill(leaves);
        awaitSends();

        int failedBefore = clients.ledger.failedCommits.size();
        clients.takePausesMs();
        theLeaderLeavesOnceAMessageIsAcknowledged(leader);
        awaitSends();
        System.out.println("members: pauses of producers while the leader leaves, ms: " + clients.takePausesMs() + "; commits that failed: "
                + (clients.ledger.failedCommits.size() - failedBefore));
        kill(leader);
        awaitSends();

        // Two are left, and both are needed: the new one knows the other by the list of members alone.
        kill(fourth);
        fourth.start();
        awaitSends();
        endClients();
        Node last = cluster.leader();
        Node other = cluster.followers(last).get(0);
        order(other.name + " has left", "leave", other.name);
        order(last.name + " is the last node with a vote", "leave", last.name);
    }

    @Test
    @DisplayName("a node that never returns is replaced, and its successor is filled again after its disk was wiped")
    void aLostNodeIsReplaced() throws Exception {
        Node fourth = cluster.newcomer("n4");
        startClients();
        Node leader = cluster.leader();
        List<Node> followers = cluster.followers(leader);
        Node lost = followers.get(0);
        Node stays = followers.get(1);
        fourth.start();
        awaitAsking(fourth);
        order(lost.name + " is connected", "replace", lost.name, "n4");
        kill(lost);
        cluster.await("the loss is noticed", () -> leader.ctl("cluster").contains(lost.name + " is not reached"));
        order("without " + stays.name + ", 1 of the other 2 nodes", "leave", stays.name);

        // Both that are left know the name of the lost node, though it has not come since they were started.
        kill(leader);
        kill(stays);
        leader.start();
        stays.start();
        awaitSends();
        awaitAsking(fourth);
        aReplacementThatIsAwayIsSaidToBe(lost, fourth);
        awaitSends();

        // The list of members has the new node, so that a wiped disk is noticed by all.
        kill(fourth);
        fourth.wipe();
        fourth.start();
        cluster.await("it is filled again", () -> fourth.readiness().contains("n4 follows"));
        assertFalse(fourth.readiness().contains("empty store"), fourth.readiness());
        kill(stays);
        awaitSends();

        lost.start();
        cluster.await("the lost node learns that it was removed", () -> lost.readiness().contains("was removed from the cluster"));
        endClients();
    }
}

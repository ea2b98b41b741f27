package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.ResourceAllocationException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.LongSummaryStatistics;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import postroad.cluster.Clients.Protocol;

/**
 * Mixed faults, under clients of two protocols at once. Each fault is followed by confirmed sends of every producer, and by all nodes
 * taking part again. A full disk is among them if this user can mount one.
 */
@DisplayName("faults: nodes that die, hang, lose their links or their disk lose and double no message")
class FaultsTest {
    /** Further faults are drawn until then: with the start and the end about a minute. By night it is an hour. */
    private static final int SECONDS = Integer.getInteger("cluster.seconds", 45);
    /** What the drawn faults follow from. */
    private static final long SEED = Long.getLong("cluster.seed", System.currentTimeMillis());
    /** Faults whose names have this in them, to look into one of them. */
    private static final String ONLY = System.getProperty("cluster.fault", "");
    /** Each fault happens once, however short the time is; and the last one may take its time. */
    private static final int FURTHER_SECONDS_MAX = 355;
    /** How long a node is cut off or paused after another leads. */
    private static final long GOES_ON_MS = 500;
    private static final int FLAPS = 12;
    private static final int FLAP_MS_MAX = 400;
    private static final long DELAY_MS = 60;
    private static final long FREE_BYTES = 5 << 20;
    /** 100 MiB: more than a node takes in that frees nothing. */
    private static final int BACKLOG_MAX = 400;
    private static final int LAST_FAULTS = 20;

    private final Clients clients = new Clients();
    private final MountedDisks disks = new MountedDisks();
    private final Random random = new Random(SEED);
    /** How long it took after each fault, in ms, until every producer had a send confirmed. */
    private final Map<String, LongSummaryStatistics> told = new TreeMap<>();
    private final Deque<String> last = new ArrayDeque<>();
    private Cluster cluster;
    private Backlog backlog;

    /** The disk of one node can get full; those of the others are as slow as real ones. */
    @BeforeEach
    void startNodes() throws Exception {
        boolean mounts = MountedDisks.areAllowed();
        cluster = Cluster.withLinks("faults", clients.ledger.failure::get, node -> {
            if (mounts && node.number == 1) {
                disks.prepare(node);
            }
        });
        backlog = new Backlog(cluster);
    }

    @AfterEach
    void endNodes() throws Exception {
        clients.abandon();
        if (cluster != null) {
            cluster.close();
        }
        disks.close();
    }

    private interface Fault {
        void happen() throws Exception;
    }

    /** Runs a fault, and waits until sends are confirmed and all nodes take part. */
    private void suffer(String name, Fault fault) throws Exception {
        int[] before = clients.sends();
        cluster.await("sends before: " + name, () -> clients.haveSent(3, before));
        long began = System.nanoTime();
        fault.happen();
        // Sends that were confirmed a moment before are counted by now.
        Thread.sleep(50);
        int[] after = clients.sends();
        cluster.await("a send of each producer after: " + name, () -> clients.haveSent(1, after));
        long ms = (System.nanoTime() - began) / 1_000_000;
        told.computeIfAbsent(name, first -> new LongSummaryStatistics()).accept(ms);
        last.add(name + " " + ms);
        if (last.size() > LAST_FAULTS) {
            last.remove();
        }
        cluster.settled();
    }

    private void kill(Node node) throws Exception {
        node.signal("KILL");
        node.awaitEnd();
    }

    private void killLeader() throws Exception {
        Node leader = cluster.leader();
        kill(leader);
        cluster.leader();
        leader.start();
    }

    private void killFollower() throws Exception {
        Node follower = cluster.followers(cluster.settled()).get(0);
        kill(follower);
        Thread.sleep(GOES_ON_MS);
        follower.start();
    }

    private void killAll() throws Exception {
        for (Node node : cluster.nodes) {
            node.signal("KILL");
        }
        for (Node node : cluster.nodes) {
            node.awaitEnd();
            node.start();
        }
    }

    private void pauseLeader() throws Exception {
        Node leader = cluster.leader();
        leader.signal("STOP");
        cluster.leader(leader);
        Thread.sleep(GOES_ON_MS);
        leader.signal("CONT");
    }

    /** Its clients still reach it: it must not confirm anything to them. */
    private void isolateLeader() throws Exception {
        Node leader = cluster.leader();
        for (Node node : cluster.nodes) {
            cluster.links.cut(leader.number, node.number);
            cluster.links.cut(node.number, leader.number);
        }
        cluster.leader(leader);
        cluster.await("the isolated leader says so", () -> leader.readiness().contains("knows no leader")
                || leader.readiness().contains("reaches 1 of 3"));
        Thread.sleep(GOES_ON_MS);
        cluster.links.restore();
    }

    /** A follower does not hear the leader, and is heard: it must not depose it. */
    private void deafenFollower() throws Exception {
        Node leader = cluster.settled();
        Node follower = cluster.followers(leader).get(1);
        cluster.links.cut(leader.number, follower.number);
        Thread.sleep(4 * GOES_ON_MS);
        assertTrue(leader.serves(), "a deaf follower deposed the leader");
        cluster.links.restore();
    }

    /** The leader is not heard, and hears the others: it must not confirm anything to its clients once another leads. */
    private void muteLeader() throws Exception {
        Node leader = cluster.leader();
        for (Node node : cluster.nodes) {
            cluster.links.cut(leader.number, node.number);
        }
        cluster.leader(leader);
        Thread.sleep(GOES_ON_MS);
        cluster.links.restore();
    }

    /** The link between the leader and a follower fails and works by turns; half of the times its connection ends as well. */
    private void flapLink() throws Exception {
        Node leader = cluster.settled();
        Node follower = cluster.followers(leader).get(random.nextInt(2));
        for (int flap = 0; flap < FLAPS; flap++) {
            cluster.links.cut(leader.number, follower.number);
            cluster.links.cut(follower.number, leader.number);
            Thread.sleep(random.nextInt(FLAP_MS_MAX));
            if (random.nextBoolean()) {
                cluster.links.sever(leader.number, follower.number);
            }
            cluster.links.restore();
            Thread.sleep(random.nextInt(FLAP_MS_MAX));
        }
    }

    /** All links of the leader are slow for a while, so each send waits for them. */
    private void delayLinks() throws Exception {
        Node leader = cluster.leader();
        for (Node node : cluster.nodes) {
            cluster.links.delay(leader.number, node.number, DELAY_MS);
            cluster.links.delay(node.number, leader.number, DELAY_MS);
        }
        Thread.sleep(4 * GOES_ON_MS);
        cluster.links.restore();
    }

    /** A disk, of the leader or of a follower, has no further space for a while: it gets full, or lives on what it can free itself. */
    private void fillDisk() throws Exception {
        Node full = cluster.nodes.stream().filter(disks::has).findFirst().orElseThrow();
        int enough = backlog.sent() + BACKLOG_MAX;
        backlog.pile("its disk is full", () -> {
            disks.fillAgain(full, FREE_BYTES);
            return full.saysFull(full) || enough <= backlog.sent();
        }, refused -> {
            // Anything else would come again with each attempt, without end.
            if (!(refused instanceof ResourceAllocationException)) {
                throw refused;
            }
        });
        Thread.sleep(GOES_ON_MS);
        disks.giveSpace(full);
        cluster.await("it has space", () -> !full.saysFull(full));
        backlog.take(backlog.sent());
    }

    /** It may have confirmed entries that are gone: it takes part again once a copy of the leader's store has filled it. */
    private void wipeFollower() throws Exception {
        Node leader = cluster.settled();
        Node follower = cluster.followers(leader).get(0);
        kill(follower);
        follower.erase();
        follower.start();
        cluster.await("the wiped node is filled", () -> follower.hasLogged("the store was filled by a copy"));
    }

    private void restartAll() throws Exception {
        for (Node node : cluster.nodes) {
            node.signal("TERM");
            node.awaitEnd();
            node.start();
            cluster.settled();
        }
    }

    /** All faults, by their names. */
    private Map<String, Fault> faults() {
        Map<String, Fault> faults = new TreeMap<>(Map.of("kill the leader", this::killLeader, "isolate the leader", this::isolateLeader,
                "mute the leader", this::muteLeader, "wipe a follower", this::wipeFollower, "pause the leader", this::pauseLeader,
                "a deaf follower", this::deafenFollower, "a flapping link", this::flapLink, "slow links", this::delayLinks,
                "kill all", this::killAll, "kill a follower", this::killFollower));
        faults.put("restart all", this::restartAll);
        if (cluster.nodes.stream().anyMatch(disks::has)) {
            faults.put("a full disk", this::fillDisk);
        }
        faults.keySet().removeIf(name -> !name.contains(ONLY));
        return faults;
    }

    @Test
    @DisplayName("each fault once, and then in a random order")
    void mixedFaults() throws Exception {
        assertTimeoutPreemptively(Duration.ofSeconds(SECONDS + FURTHER_SECONDS_MAX), this::sufferAll);
    }

    private void sufferAll() throws Exception {
        System.out.println("faults: seed " + SEED + ", " + SECONDS + " s");
        cluster.settled();
        clients.sendAgainIfFull();
        clients.start(Protocol.OPENWIRE, "openwire.1", cluster.nodes);
        clients.start(Protocol.OPENWIRE, "openwire.2", cluster.nodes);
        clients.start(Protocol.AMQP, "amqp.1", cluster.nodes);
        clients.start(Protocol.AMQP, "amqp.2", cluster.nodes);
        Map<String, Fault> faults = faults();
        List<String> names = new ArrayList<>(faults.keySet());
        long end = System.nanoTime() + Duration.ofSeconds(SECONDS).toNanos();
        try {
            for (int count = 0; count < names.size() || System.nanoTime() < end; count++) {
                String name = names.get(count < names.size() ? count : random.nextInt(names.size()));
                suffer(name, faults.get(name));
            }
            clients.stopSending();
            cluster.await("the last message", () -> clients.ledger.missing().isEmpty());
            clients.stop();
        } finally {
            System.out.println("faults, their number, and ms until every producer had a send confirmed: " + told.entrySet().stream()
                    .map(fault -> fault.getKey() + " " + fault.getValue().getCount() + " times, " + Math.round(fault.getValue().getAverage())
                            + ", at most " + fault.getValue().getMax()).collect(Collectors.joining("; ")));
            System.out.println("the last of them: " + String.join(", ", last));
            System.out.println("faults: " + clients.ledger);
        }
        clients.ledger.assertNothingLostOrDoubled();
    }
}

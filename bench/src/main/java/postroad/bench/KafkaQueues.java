package postroad.bench;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Makes queues in a Kafka cluster, once all of its nodes take part, and prints for each the node that leads it: a topic of one
 * partition with a replica on each node, and a share group that begins with the first record. Queues that exist are left as they are.
 */
public final class KafkaQueues {
  private static final long WITHIN_MILLIS = 120_000;
  private static final long POLL_MILLIS = 200;

  private KafkaQueues() {}

  public static void main(String[] arguments) throws Exception {
    if (arguments.length < 2) {
      throw new IllegalArgumentException("expected a URL, the number of nodes, and names of queues");
    }
    int nodes = Integer.parseInt(arguments[1]);
    List<String> queues = Arrays.asList(arguments).subList(2, arguments.length);
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", Kafka.servers(arguments[0])))) {
      awaitNodes(admin, nodes);
      List<String> made = make(admin, queues, (short) nodes);
      if (!made.isEmpty()) {
        openGroup(admin, arguments[0], made.get(0));
      }
      for (String queue : queues) {
        System.out.println(leader(admin, queue, nodes));
      }
    }
    System.exit(0);
  }

  private static void awaitNodes(Admin admin, int nodes) throws Exception {
    long end = System.currentTimeMillis() + WITHIN_MILLIS;
    while (admin.describeCluster().nodes().get(WITHIN_MILLIS, TimeUnit.MILLISECONDS).size() < nodes) {
      requireTime(end, "not all nodes have joined");
    }
  }

  private static List<String> make(Admin admin, List<String> queues, short replicas) throws Exception {
    List<String> missing = new ArrayList<>(queues);
    missing.removeAll(admin.listTopics().names().get());
    admin.createTopics(missing.stream().map(queue -> new NewTopic(queue, 1, replicas)).toList()).all().get();
    for (String queue : missing) {
      var begin = new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
      admin.incrementalAlterConfigs(
          Map.of(new ConfigResource(ConfigResource.Type.GROUP, Kafka.group(queue)), List.of(begin))).all().get();
    }
    return missing;
  }

  /** The first share group has Kafka make the topic of their states, which takes seconds: not while messages are measured. */
  private static void openGroup(Admin admin, String url, String queue) throws Exception {
    long end = System.currentTimeMillis() + WITHIN_MILLIS;
    String group = Kafka.group(queue);
    try (Protocol.Source source = new Kafka(url, false, true).source(queue)) {
      boolean reads = false;
      while (!reads) {
        source.receive(POLL_MILLIS, message -> { });
        try {
          reads = admin.describeShareGroups(List.of(group)).describedGroups().get(group).get().members().stream()
              .anyMatch(member -> !member.assignment().topicPartitions().isEmpty());
        } catch (ExecutionException notKnownYet) {
          // Asked again.
        }
        requireTime(end, "no share group of " + queue);
      }
    }
  }

  /** The node that leads a queue, once all replicas are in sync. */
  private static int leader(Admin admin, String queue, int nodes) throws Exception {
    long end = System.currentTimeMillis() + WITHIN_MILLIS;
    while (true) {
      try {
        var partition = admin.describeTopics(List.of(queue)).allTopicNames().get().get(queue).partitions().get(0);
        if (partition.leader() != null && partition.isr().size() == nodes) {
          return partition.leader().id();
        }
      } catch (ExecutionException notKnownYet) {
        // Asked again.
      }
      requireTime(end, "no leader of " + queue);
    }
  }

  private static void requireTime(long end, String lacking) throws InterruptedException {
    if (end < System.currentTimeMillis()) {
      throw new IllegalStateException(lacking + " within " + WITHIN_MILLIS + " ms");
    }
    Thread.sleep(50);
  }
}

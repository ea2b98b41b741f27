package postroad.bench;

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** What one run does, read from `--name value` pairs. */
record Options(String url, boolean topic, boolean persistent, String name, int destinations, int producers, int consumers, int bodyBytes,
    double warmupSeconds, double durationSeconds, int drainConsumers, long drainSecondsMax, long idleSecondsMax,
    List<Long> serverPids, int ticksPerSecond, int runId, int messages, double rate) {

  private static final Set<String> KNOWN = Set.of("url", "kind", "persistent", "name", "destinations", "producers", "consumers",
      "body-bytes", "warmup", "duration", "drain-consumers", "drain-max", "idle-max", "server-pid", "ticks", "run-id", "messages", "rate");

  static Options parse(String[] arguments) {
    Map<String, String> given = new HashMap<>();
    for (int k = 0; k < arguments.length; k += 2) {
      String key = arguments[k].replaceFirst("^--", "");
      if (!arguments[k].startsWith("--") || !KNOWN.contains(key) || k + 1 == arguments.length) {
        throw new IllegalArgumentException("unknown option, or no value: " + arguments[k]);
      }
      given.put(key, arguments[k + 1]);
    }
    String kind = given.getOrDefault("kind", "queue");
    if (!kind.equals("queue") && !kind.equals("topic")) {
      throw new IllegalArgumentException("--kind is queue or topic, not " + kind);
    }
    int bodyBytes = number(given, "body-bytes", 1024);
    if (bodyBytes < Body.HEADER_BYTES || Body.BYTES_MAX < bodyBytes) {
      throw new IllegalArgumentException("--body-bytes is " + Body.HEADER_BYTES + " to " + Body.BYTES_MAX);
    }
    return new Options(given.getOrDefault("url", "tcp://127.0.0.1:61616"), kind.equals("topic"),
        Boolean.parseBoolean(given.getOrDefault("persistent", "true")), given.getOrDefault("name", "bench"), number(given, "destinations", 1), number(given, "producers", 1),
        number(given, "consumers", 1), bodyBytes, Double.parseDouble(given.getOrDefault("warmup", "5")),
        Double.parseDouble(given.getOrDefault("duration", "15")), number(given, "drain-consumers", 0),
        number(given, "drain-max", 180), number(given, "idle-max", 10), pids(given.getOrDefault("server-pid", "")),
        number(given, "ticks", 100), number(given, "run-id", 1), number(given, "messages", 0),
        Double.parseDouble(given.getOrDefault("rate", "0")));
  }

  /** Processes of the server: several in a cluster. */
  private static List<Long> pids(String given) {
    return given.isEmpty() ? List.of() : Arrays.stream(given.split(",")).map(Long::valueOf).toList();
  }

  private static int number(Map<String, String> given, String key, int otherwise) {
    return Integer.parseInt(given.getOrDefault(key, Integer.toString(otherwise)));
  }

  /** Nanoseconds between two sends of one producer; 0 if each sends as soon as it can. */
  double sendIntervalNanos() {
    return 0 < rate ? producers * 1e9 / rate : 0;
  }

  /** Name of the destination at `index`, which producers and consumers are dealt in turn. */
  String destination(int index) {
    return destinations == 1 ? name : name + "." + index % destinations;
  }
}

package postroad.bench;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;

/** Processor seconds of the server, of this client and of the whole machine, from /proc. */
record Machine(double serverSeconds, double clientSeconds, double allSeconds) {

  static Machine now(Options options) throws IOException {
    double ticks = options.ticksPerSecond();
    double server = 0;
    for (long pid : options.serverPids()) {
      String stat = Files.readString(Path.of("/proc", Long.toString(pid), "stat"));
      // Fields are counted behind the name, which stands in parentheses and may contain blanks.
      String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
      server += (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) / ticks;
    }
    var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    String[] all = Files.readAllLines(Path.of("/proc/stat")).get(0).trim().split("\\s+");
    long busy = 0;
    for (int k : new int[] {1, 2, 3, 6, 7}) { // user, nice, system, irq, softirq
      busy += Long.parseLong(all[k]);
    }
    return new Machine(server, system.getProcessCpuTime() / 1e9, busy / ticks);
  }

  Machine since(Machine earlier) {
    return new Machine(serverSeconds - earlier.serverSeconds, clientSeconds - earlier.clientSeconds,
        allSeconds - earlier.allSeconds);
  }

  /** Processor time that neither server nor client used: how disturbed the run was. */
  double otherSeconds() {
    return Math.max(0, allSeconds - serverSeconds - clientSeconds);
  }
}

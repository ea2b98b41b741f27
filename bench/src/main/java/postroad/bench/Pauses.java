package postroad.bench;

import com.sun.management.GarbageCollectionNotificationInfo;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.util.concurrent.atomic.AtomicLong;
import javax.management.NotificationEmitter;
import javax.management.openmbean.CompositeData;

/** The longest time for which this load generator stood still to collect its garbage: no send that waited then was the broker's fault. */
final class Pauses {
  private final AtomicLong longest = new AtomicLong();

  private Pauses() {}

  /** Watches from now on. */
  static Pauses watch() {
    Pauses pauses = new Pauses();
    for (GarbageCollectorMXBean collector : ManagementFactory.getGarbageCollectorMXBeans()) {
      ((NotificationEmitter) collector).addNotificationListener((notification, unused) -> {
        var said = GarbageCollectionNotificationInfo.from((CompositeData) notification.getUserData());
        pauses.longest.accumulateAndGet(said.getGcInfo().getDuration(), Math::max);
      }, null, null);
    }
    return pauses;
  }

  long longestMillis() {
    return longest.get();
  }
}

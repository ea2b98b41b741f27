package postroad.bench;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Random;

/**
 * A message body that can be checked: run, producer, sequence number and time of the send, then filler that follows from
 * producer and sequence number, so that no two bodies of a run are alike and every byte is known.
 */
final class Body {
  static final int HEADER_BYTES = Integer.BYTES * 2 + Long.BYTES * 2;
  static final int BYTES_MAX = 1 << 20;
  /** Filler is cut from this block; a prime number of places to start keeps neighbours different. */
  private static final int STARTS = 65_521;
  private static final byte[] FILLER = new byte[STARTS + BYTES_MAX];

  static {
    new Random(20_261_121).nextBytes(FILLER);
  }

  private Body() {}

  static byte[] write(int runId, int producer, long sequence, long sentNanos, int bodyBytes) {
    ByteBuffer body = ByteBuffer.allocate(bodyBytes);
    body.putInt(runId).putInt(producer).putLong(sequence).putLong(sentNanos);
    body.put(FILLER, start(producer, sequence), bodyBytes - HEADER_BYTES);
    return body.array();
  }

  /** What a received body says; `null` if it is none of this run's bodies, or damaged. */
  static Read read(byte[] bytes, int runId, int bodyBytes) {
    if (bytes.length != bodyBytes) {
      return null;
    }
    ByteBuffer body = ByteBuffer.wrap(bytes);
    int run = body.getInt();
    Read read = new Read(body.getInt(), body.getLong(), body.getLong());
    if (run != runId || read.producer < 0 || read.sequence < 0) {
      return null;
    }
    int start = start(read.producer, read.sequence);
    boolean same = Arrays.equals(bytes, HEADER_BYTES, bodyBytes, FILLER, start, start + bodyBytes - HEADER_BYTES);
    return same ? read : null;
  }

  private static int start(int producer, long sequence) {
    return (int) ((producer * 7_919L + sequence * 31) % STARTS);
  }

  record Read(int producer, long sequence, long sentNanos) {}
}

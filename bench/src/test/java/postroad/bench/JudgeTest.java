package postroad.bench;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/** The judge must see what brokers do wrong: every kind of fault, made on purpose. */
class JudgeTest {
  private static final int RUN = 7;

  @Test
  void aBodyReadsBackAsWritten() {
    for (int bytes : new int[] {Body.HEADER_BYTES, 128, 5000, Body.BYTES_MAX}) {
      byte[] body = Body.write(RUN, 3, 4_000_000_000L, 55, bytes);
      assertEquals(bytes, body.length);
      assertEquals(new Body.Read(3, 4_000_000_000L, 55), Body.read(body, RUN, bytes), bytes + " bytes");
    }
  }

  @Test
  void everyDamagedByteIsSeen() {
    byte[] body = Body.write(RUN, 3, 9, 55, 128);
    for (int at = 0; at < body.length; at++) {
      byte[] damaged = body.clone();
      damaged[at] ^= 1;
      Body.Read read = Body.read(damaged, RUN, 128);
      boolean time = 16 <= at && at < Body.HEADER_BYTES; // the time of the send is measured, not judged
      assertEquals(time, read != null && read.producer() == 3 && read.sequence() == 9, "byte " + at);
    }
    assertNull(Body.read(body, RUN + 1, 128), "a body of another run");
    assertNull(Body.read(body, RUN, 129), "a body of another length");
  }

  @Test
  void theLedgerCountsLostDoubledAndStrange() {
    Ledger ledger = new Ledger("q", 2);
    for (long sequence : new long[] {0, 1, 3, 3, 9}) {
      assertTrue(ledger.enter(0, sequence));
    }
    assertFalse(ledger.enter(2, 0), "there is no third producer");
    long[] found = {ledger.received(), ledger.doubled(), ledger.lost(0, 5), ledger.lost(1, 2), ledger.strange(0, 5)};
    assertArrayEquals(new long[] {4, 1, 2, 2, 1}, found, "received, doubled, lost of each producer, strange");
  }
}

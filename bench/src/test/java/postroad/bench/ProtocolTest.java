package postroad.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.api.Test;

/** The URL says the protocol; and a comparison with Kafka is one of confirmed sends and acknowledged records. */
class ProtocolTest {
  @Test
  void theUrlNamesTheProtocol() {
    assertInstanceOf(Kafka.class, Protocol.of("kafka://127.0.0.1:1,127.0.0.1:2", false, true));
    for (String url : new String[] {"tcp://127.0.0.1:1", "amqp://127.0.0.1:1", "failover:(amqp://127.0.0.1:1)", "failover:(tcp://127.0.0.1:1)"}) {
      assertInstanceOf(Jms.class, Protocol.of(url, true, false), url);
    }
  }

  @Test
  void kafkaHasDurableQueuesOnly() {
    assertThrows(IllegalArgumentException.class, () -> Protocol.of("kafka://127.0.0.1:1", true, true));
    assertThrows(IllegalArgumentException.class, () -> Protocol.of("kafka://127.0.0.1:1", false, false));
  }

  @Test
  void kafkaConfirmsByAllReplicasAndAcknowledgesEachRecord() {
    var producer = Kafka.producerOptions("127.0.0.1:1");
    assertEquals("all", producer.get("acks"));
    assertEquals("0", producer.get("linger.ms"));
    var consumer = Kafka.consumerOptions("127.0.0.1:1", "bench.queue");
    assertEquals("explicit", consumer.get("share.acknowledgement.mode"));
    assertEquals(Kafka.group("bench.queue"), consumer.get("group.id"));
  }
}

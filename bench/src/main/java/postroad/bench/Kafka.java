package postroad.bench;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka by its own client. A queue is a topic with one share group: each record goes to one of its consumers, which acknowledges it. A
 * send returns once all replicas in sync have confirmed it.
 */
final class Kafka implements Protocol {
  static final String SCHEME = "kafka://";
  private static final short FIRST_DELIVERY = 1;

  private final String servers;

  /** @throws IllegalArgumentException if the run is of another kind than durable queues */
  Kafka(String url, boolean topic, boolean persistent) {
    if (topic || !persistent) {
      throw new IllegalArgumentException("with Kafka there are durable queues only, as share groups");
    }
    servers = servers(url);
  }

  static String servers(String url) {
    return url.substring(SCHEME.length());
  }

  /** The share group of a queue. */
  static String group(String queue) {
    return queue + ".consumers";
  }

  @Override
  public Sender sender(String destination) {
    var producer = new KafkaProducer<>(producerOptions(servers), new ByteArraySerializer(), new ByteArraySerializer());
    return new Sender() {
      @Override
      public void send(byte[] body) throws Exception {
        producer.send(new ProducerRecord<>(destination, body)).get();
      }

      @Override
      public void close() {
        producer.close(Duration.ZERO);
      }
    };
  }

  static Map<String, Object> producerOptions(String servers) {
    return new HashMap<>(Map.of("bootstrap.servers", servers, "acks", "all", "linger.ms", "0", "enable.idempotence", "true"));
  }

  static Map<String, Object> consumerOptions(String servers, String queue) {
    return new HashMap<>(Map.of("bootstrap.servers", servers, "group.id", group(queue), "share.acknowledgement.mode", "explicit"));
  }

  @Override
  public Source source(String destination) {
    var consumer = new KafkaShareConsumer<>(consumerOptions(servers, destination), new ByteArrayDeserializer(),
        new ByteArrayDeserializer());
    consumer.subscribe(List.of(destination));
    return new Source() {
      @Override
      public void receive(long millisMax, Consumer<Received> taker) {
        // Acknowledgements of the records before go with this request.
        var records = consumer.poll(Duration.ofMillis(millisMax));
        long now = System.nanoTime();
        for (ConsumerRecord<byte[], byte[]> record : records) {
          taker.accept(new Received(record.value(), record.deliveryCount().orElse(FIRST_DELIVERY) != FIRST_DELIVERY, now));
          consumer.acknowledge(record, AcknowledgeType.ACCEPT);
        }
      }

      /** By the thread that receives, or once that has ended: the client refuses others. */
      @Override
      public void close() {
        consumer.close(Duration.ofSeconds(5));
      }
    };
  }
}

package postroad.bench;

import java.util.function.Consumer;

/** How this load generator speaks to a broker: by an unmodified client of the protocol that the URL names. */
interface Protocol {
  /** A sender to one destination, on a connection of its own. */
  Sender sender(String destination) throws Exception;

  /** A receiver of one destination, on a connection of its own, which acknowledges what it has given. */
  Source source(String destination) throws Exception;

  interface Sender extends AutoCloseable {
    /** Returns once the message is confirmed, if it is durable. */
    void send(byte[] body) throws Exception;
  }

  interface Source extends AutoCloseable {
    /** Gives the messages that came, after at most so long; none of them is given before its time of arrival. */
    void receive(long millisMax, Consumer<Received> taker) throws Exception;
  }

  /** A message; the body is `null` if it is of another type than those that are sent here. */
  record Received(byte[] body, boolean redelivered, long nanos) {}

  static Protocol of(String url, boolean topic, boolean persistent) {
    return url.startsWith(Kafka.SCHEME) ? new Kafka(url, topic, persistent) : new Jms(url, topic, persistent);
  }
}

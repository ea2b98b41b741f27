package postroad.bench;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.util.function.Consumer;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.qpid.jms.JmsConnectionFactory;

/** JMS over AMQP 1.0 by Qpid's client, if the URL says so, and otherwise over OpenWire by ActiveMQ's. */
final class Jms implements Protocol {
  /**
   * A poll that finds nothing is not asked of the broker: RabbitMQ 3.10's plug-in ends the session at a drain of a classic queue.
   */
  private static final String QPID_OPTIONS = "?jms.receiveLocalOnly=true&jms.receiveNoWaitLocalOnly=true";

  private final ConnectionFactory factory;
  private final boolean topic;
  private final boolean persistent;

  Jms(String url, boolean topic, boolean persistent) {
    this.topic = topic;
    this.persistent = persistent;
    if (url.startsWith("amqp:")) {
      factory = new JmsConnectionFactory(url + QPID_OPTIONS);
    } else {
      factory = url.contains("amqp://") ? new JmsConnectionFactory(url) : new ActiveMQConnectionFactory(url);
    }
  }

  private Destination destination(Session session, String name) throws JMSException {
    return topic ? session.createTopic(name) : session.createQueue(name);
  }

  @Override
  public Sender sender(String destination) throws JMSException {
    Connection connection = factory.createConnection();
    connection.start();
    Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    MessageProducer producer = session.createProducer(destination(session, destination));
    producer.setDeliveryMode(persistent ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT);
    return new Sender() {
      @Override
      public void send(byte[] body) throws JMSException {
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(body);
        producer.send(message);
      }

      @Override
      public void close() throws JMSException {
        connection.close();
      }
    };
  }

  @Override
  public Source source(String destination) throws JMSException {
    Connection connection = factory.createConnection();
    Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    MessageConsumer consumer = session.createConsumer(destination(session, destination));
    connection.start();
    return new Source() {
      @Override
      public void receive(long millisMax, Consumer<Received> taker) throws JMSException {
        Message message = consumer.receive(millisMax);
        if (message != null) {
          long now = System.nanoTime();
          taker.accept(new Received(body(message), message.getJMSRedelivered(), now));
        }
      }

      @Override
      public void close() throws JMSException {
        connection.close();
      }
    };
  }

  private static byte[] body(Message message) throws JMSException {
    if (!(message instanceof BytesMessage bytes)) {
      return null;
    }
    byte[] body = new byte[(int) Math.min(bytes.getBodyLength(), Body.BYTES_MAX + 1L)];
    bytes.readBytes(body);
    return body;
  }
}

package postroad.bench.camel;

import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.DeliveryMode;
import javax.jms.JMSException;
import javax.jms.MessageProducer;
import javax.jms.Session;
import org.apache.activemq.ActiveMQConnectionFactory;

/**
 * Sends durable messages at a steady rate: arguments are the URL, the queue, the number of messages, the rate, and the bytes of a body. Each line
 * on standard output is the number of seconds that the sends took.
 */
public final class Source {
    private static final int PRODUCERS = 8;

    private Source() {}

    public static void main(String[] arguments) throws Exception {
        long messages = Long.parseLong(arguments[2]);
        double perSecond = Double.parseDouble(arguments[3]);
        byte[] body = new byte[Integer.parseInt(arguments[4])];
        AtomicLong next = new AtomicLong();
        Connection connection = new ActiveMQConnectionFactory(arguments[0]).createConnection();
        connection.start();
        long start = System.nanoTime();
        Thread[] producers = new Thread[PRODUCERS];
        Throwable[] failed = new Throwable[1];
        for (int number = 0; number < PRODUCERS; number++) {
            producers[number] = new Thread(() -> {
                try {
                    Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                    MessageProducer producer = session.createProducer(session.createQueue(arguments[1]));
                    producer.setDeliveryMode(DeliveryMode.PERSISTENT);
                    for (long turn = next.getAndIncrement(); turn < messages; turn = next.getAndIncrement()) {
                        long due = start + (long) (turn * 1e9 / perSecond);
                        for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
                            LockSupport.parkNanos(left);
                        }
                        BytesMessage message = session.createBytesMessage();
                        message.writeBytes(body);
                        producer.send(message);
                    }
                } catch (JMSException failure) {
                    failed[0] = failure;
                }
            });
            producers[number].start();
        }
        for (Thread producer : producers) {
            producer.join();
        }
        connection.close();
        if (failed[0] != null) {
            throw new IllegalStateException(failed[0]);
        }
        System.out.println((System.nanoTime() - start) / 1e9);
    }
}

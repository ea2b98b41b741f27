package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import jakarta.jms.DeliveryMode;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Where messages go: virtual topics, several destinations in one name, patterns of topics. */
@DisplayName("ActiveMQ addressing")
class AddressingTest extends JmsTest {
    @Test
    @DisplayName("a virtual topic feeds the queue of each application, and plain subscribers")
    void virtualTopicFeedsQueues() throws Exception {
        String topic = "VirtualTopic." + unique("feeds");
        Session session = autoAcknowledge(connect());
        ActiveMQQueue queueOfA = new ActiveMQQueue("Consumer.A." + topic);
        MessageConsumer first = session.createConsumer(queueOfA);
        MessageConsumer second = autoAcknowledge(connect()).createConsumer(queueOfA);
        MessageConsumer ofB = session.createConsumer(new ActiveMQQueue("Consumer.B." + topic));
        MessageConsumer plain = session.createConsumer(new ActiveMQTopic(topic));
        send(session, new ActiveMQTopic(topic), "m", "n");
        assertEquals(List.of("m", "n"), texts(ofB, 2));
        assertEquals(List.of("m", "n"), texts(plain, 2));
        List<String> ofA = new ArrayList<>(texts(first, 1));
        ofA.addAll(texts(second, 1));
        ofA.sort(null);
        assertEquals(List.of("m", "n"), ofA);
    }

    @Test
    @DisplayName("what a virtual topic put into a queue says so")
    void virtualTopicMessagesHaveTheQueueAsDestination() throws Exception {
        String topic = "VirtualTopic." + unique("destination");
        Session session = autoAcknowledge(connect());
        ActiveMQQueue queue = new ActiveMQQueue("Consumer.A." + topic);
        MessageConsumer consumer = session.createConsumer(queue);
        send(session, new ActiveMQTopic(topic), "m");
        Message message = receive(consumer);
        assertEquals(queue, message.getJMSDestination());
        assertEquals(new ActiveMQTopic(topic), ((ActiveMQMessage) message).getOriginalDestination());
        assertEquals("m", text(message));
        assertNull(consumer.receiveNoWait());
    }

    @Test
    @DisplayName("a virtual topic's queue keeps what is sent while nobody reads")
    void virtualTopicQueuesAreDurable() throws Exception {
        String topic = "VirtualTopic." + unique("keeps");
        Session session = autoAcknowledge(connect());
        ActiveMQQueue queue = new ActiveMQQueue("Consumer.A." + topic);
        session.createConsumer(queue).close();
        send(session, new ActiveMQTopic(topic), "m", "n");
        assertEquals(List.of("m", "n"), texts(session.createConsumer(queue), 2));
    }

    @Test
    @DisplayName("what a composite destination forwards says where it was taken from, and where it was sent to")
    void forwardedMessagesHaveTheTargetAsDestination() throws Exception {
        Session session = autoAcknowledge(connect());
        ActiveMQQueue queue = new ActiveMQQueue("forwarded.queue");
        ActiveMQTopic topic = new ActiveMQTopic("forwarded.topic");
        Map<MessageConsumer, Destination> ofQueue = consumersOf(session, "forwarded.a", "topic://forwarded.t");
        Map<MessageConsumer, Destination> ofTopic = consumersOf(session, "forwarded.b", "topic://forwarded.topic");
        send(session, queue, "q");
        send(session, topic, "t");
        for (Map.Entry<MessageConsumer, Destination> consumer : ofQueue.entrySet()) {
            assertForwarded("q", consumer.getValue(), queue, receive(consumer.getKey()));
        }
        for (Map.Entry<MessageConsumer, Destination> consumer : ofTopic.entrySet()) {
            boolean isItself = topic.equals(consumer.getValue());
            assertForwarded("t", consumer.getValue(), isItself ? null : topic, receive(consumer.getKey()));
        }
    }

    private static Map<MessageConsumer, Destination> consumersOf(Session session, String... names) throws JMSException {
        Map<MessageConsumer, Destination> consumers = new LinkedHashMap<>();
        for (String name : names) {
            Destination from = ActiveMQDestination.createDestination(name, ActiveMQDestination.QUEUE_TYPE);
            consumers.put(session.createConsumer(from), from);
        }
        return consumers;
    }

    private static void assertForwarded(String text, Destination at, Destination sentTo, Message message)
            throws JMSException {
        assertEquals(text, text(message));
        assertEquals(at, message.getJMSDestination());
        assertEquals(sentTo, ((ActiveMQMessage) message).getOriginalDestination());
    }

    @Test
    @DisplayName("a message may be sent to several destinations by one name")
    void compositeProducer() throws Exception {
        String name = unique("composite");
        Session session = autoAcknowledge(connect());
        Destination all = new ActiveMQQueue(name + ".a," + name + ".b,topic://" + name + ".c");
        MessageConsumer ofC = session.createConsumer(new ActiveMQTopic(name + ".c"));
        for (int mode : new int[] {DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT}) {
            MessageProducer producer = session.createProducer(all);
            producer.setDeliveryMode(mode);
            producer.send(session.createTextMessage("m" + mode));
            for (Destination each : List.of(new ActiveMQQueue(name + ".a"), new ActiveMQQueue(name + ".b"))) {
                MessageConsumer consumer = session.createConsumer(each);
                Message message = receive(consumer);
                assertEquals("m" + mode, text(message));
                assertEquals(each, message.getJMSDestination());
                consumer.close();
            }
            Message message = receive(ofC);
            assertEquals("m" + mode, text(message));
            assertEquals(new ActiveMQTopic(name + ".c"), message.getJMSDestination());
        }
    }

    @Test
    @DisplayName("a transaction with a message for several destinations is all or nothing")
    void compositeProducerInATransaction() throws Exception {
        String name = unique("transacted");
        ActiveMQConnection connection = connect();
        Session session = transacted(connection);
        Destination all = new ActiveMQQueue(name + ".a," + name + ".b");
        send(session, all, "rolled back");
        session.rollback();
        send(session, all, "committed");
        session.commit();
        Session reader = autoAcknowledge(connection);
        for (String each : List.of(".a", ".b")) {
            MessageConsumer consumer = reader.createConsumer(new ActiveMQQueue(name + each));
            assertEquals(List.of("committed"), texts(consumer, 1));
            assertSilent(consumer);
        }
    }

    @Test
    @DisplayName("a subscriber reads every topic of a pattern, those to come too")
    void wildcardTopics() throws Exception {
        String name = unique("pattern");
        Session session = autoAcknowledge(connect());
        MessageConsumer words = session.createConsumer(new ActiveMQTopic(name + ".*"));
        MessageConsumer rest = session.createConsumer(new ActiveMQTopic(name + ".>"));
        send(session, new ActiveMQTopic(name + ".x"), "m");
        send(session, new ActiveMQTopic(name + ".y"), "n");
        send(session, new ActiveMQTopic(name + ".x.y"), "o");
        assertEquals(List.of("m", "n"), texts(words, 2));
        assertSilent(words);
        List<String> seen = new ArrayList<>();
        for (int count = 0; count < 3; count++) {
            Message message = receive(rest);
            seen.add(text(message) + " " + ((Topic) message.getJMSDestination()).getTopicName().substring(name.length()));
        }
        assertEquals(List.of("m .x", "n .y", "o .x.y"), seen);
    }

    @Test
    @DisplayName("a durable subscription to a pattern of topics")
    void durableWildcardSubscription() throws Exception {
        String name = unique("durable");
        ActiveMQConnection connection = unstarted(factory());
        connection.setClientID(unique("client"));
        connection.start();
        Session session = autoAcknowledge(connection);
        session.createDurableSubscriber(new ActiveMQTopic(name + ".>"), "s").close();
        send(session, new ActiveMQTopic(name + ".x"), "m");
        send(session, new ActiveMQTopic(name + ".y"), "n");
        MessageConsumer subscriber = session.createDurableSubscriber(new ActiveMQTopic(name + ".>"), "s");
        assertEquals(List.of("m", "n"), texts(subscriber, 2));
        subscriber.close();
        session.unsubscribe("s");
    }
}

package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Destination;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;

import org.apache.activemq.ActiveMQConnectionFactory;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;

/** Each feature of messages and destinations over one duplex link that a Postroad has opened. The cases share the brokers. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class FeaturesOverLink {
    private static final int LARGE_BYTES = 12 << 20;
    private static final String SCHEDULED_DELAY = "AMQ_SCHEDULED_DELAY";

    /** The initiator. */
    Broker west;
    Connection here;
    Connection there;
    Session atWest;
    Session atPeer;

    /** Starts the peer. */
    abstract void startPeer() throws Exception;

    abstract void stopPeer() throws Exception;

    abstract String peerUrl() throws Exception;

    /** Whether the peer has learned of a consumer at the Postroad. */
    abstract boolean peerHasDemand(Destination destination) throws Exception;

    @BeforeAll
    void startBoth() throws Exception {
        startPeer();
        west = Broker.launch(getClass().getSimpleName(), "broker_name = 'west'\n[[bridge]]\nname = 'east'\nto = ['"
                + peerUrl() + "']\nduplex = true\n");
        here = connect(west.url());
        there = connect(peerUrl());
        atWest = session(here);
        atPeer = session(there);
    }

    @AfterAll
    void stopBoth() throws Exception {
        here.close();
        there.close();
        west.close();
        stopPeer();
    }

    static Connection connect(String url) throws Exception {
        Connection connection = new ActiveMQConnectionFactory(url).createConnection();
        connection.start();
        return connection;
    }

    static Session session(Connection connection) throws Exception {
        return connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    /** Whether a broker has a consumer of that priority class: a link's own is below zero. */
    static boolean hasDemand(Broker broker, String destination) throws Exception {
        return broker.command("ctl", "consumers", "--json").lines()
                .anyMatch(row -> row.contains("\"" + destination + "\"") && row.contains("\"priority\":-"));
    }

    void awaitDemandHere(String destination) throws Exception {
        NetworkTest.eventually("demand for " + destination, () -> hasDemand(west, destination));
    }

    void awaitDemandThere(Destination destination) throws Exception {
        NetworkTest.eventually("demand at the peer for " + destination, () -> peerHasDemand(destination));
    }

    /** The numbers of messages that the consumers get together, until there are that many. */
    private static List<Integer> numbers(int messages, MessageConsumer... consumers) throws Exception {
        List<Integer> numbers = new ArrayList<>();
        long until = System.nanoTime() + NetworkTest.PATIENCE_MS * 1_000_000L;
        while (numbers.size() < messages && System.nanoTime() < until) {
            for (MessageConsumer consumer : consumers) {
                Message message = consumer.receive(20);
                if (message != null) {
                    numbers.add(message.getIntProperty("number"));
                }
            }
        }
        for (MessageConsumer consumer : consumers) {
            NetworkTest.expectNothing(consumer);
        }
        return numbers;
    }

    @Test
    void eachGroupOfAVirtualTopicGetsEachMessageOnce() throws Exception {
        MessageConsumer oneThere = atPeer.createConsumer(atPeer.createQueue("Consumer.A.VirtualTopic.orders"));
        MessageConsumer oneHere = atWest.createConsumer(atWest.createQueue("Consumer.A.VirtualTopic.orders"));
        MessageConsumer twoThere = atPeer.createConsumer(atPeer.createQueue("Consumer.B.VirtualTopic.orders"));
        MessageConsumer threeHere = atWest.createConsumer(atWest.createQueue("Consumer.C.VirtualTopic.orders"));
        awaitDemandHere("queue://Consumer.A.VirtualTopic.orders");
        awaitDemandHere("queue://Consumer.B.VirtualTopic.orders");
        awaitDemandThere(atPeer.createQueue("Consumer.A.VirtualTopic.orders"));
        awaitDemandThere(atPeer.createQueue("Consumer.C.VirtualTopic.orders"));
        NetworkTest.send(atWest, atWest.createTopic("VirtualTopic.orders"), 0, 20);
        NetworkTest.send(atPeer, atPeer.createTopic("VirtualTopic.orders"), 20, 40);
        Set<Integer> all = new TreeSet<>();
        for (int number = 0; number < 40; number++) {
            all.add(number);
        }
        for (MessageConsumer[] group : new MessageConsumer[][] {{oneThere, oneHere}, {twoThere}, {threeHere}}) {
            List<Integer> numbers = numbers(40, group);
            assertEquals(40, numbers.size(), "each once: " + numbers);
            assertEquals(all, new TreeSet<>(numbers));
        }
    }

    @Test
    void aDurableSubscriberGetsWhatWasSentWhileItWasAway() throws Exception {
        Topic topic = atPeer.createTopic("kept.news");
        try (Connection connection = new ActiveMQConnectionFactory(peerUrl()).createConnection()) {
            connection.setClientID("reader");
            connection.start();
            MessageConsumer subscriber = session(connection).createDurableSubscriber(topic, "news");
            awaitDemandHere("topic://kept.news");
            NetworkTest.send(atWest, topic, 0, 5);
            NetworkTest.expect(subscriber, 0, 5);
        }
        NetworkTest.send(atWest, topic, 5, 10);
        try (Connection connection = new ActiveMQConnectionFactory(peerUrl()).createConnection()) {
            connection.setClientID("reader");
            connection.start();
            Session session = session(connection);
            MessageConsumer subscriber = session.createDurableSubscriber(topic, "news");
            NetworkTest.expect(subscriber, 5, 10);
            NetworkTest.expectNothing(subscriber);
            subscriber.close();
            session.unsubscribe("news");
        }
    }

    @Test
    void aRequestIsAnswered() throws Exception {
        MessageConsumer service = atPeer.createConsumer(atPeer.createQueue("service"));
        TemporaryQueue replies = atWest.createTemporaryQueue();
        MessageConsumer client = atWest.createConsumer(replies);
        TextMessage request = atWest.createTextMessage("question");
        request.setJMSReplyTo(replies);
        request.setJMSCorrelationID("17");
        atWest.createProducer(atWest.createQueue("service")).send(request);
        Message asked = service.receive(NetworkTest.PATIENCE_MS);
        assertNotNull(asked, "the request");
        TextMessage answer = atPeer.createTextMessage("answer");
        answer.setJMSCorrelationID(asked.getJMSCorrelationID());
        atPeer.createProducer(asked.getJMSReplyTo()).send(answer);
        Message reply = client.receive(NetworkTest.PATIENCE_MS);
        assertNotNull(reply, "the reply");
        assertEquals("17", reply.getJMSCorrelationID());
    }

    @Test
    void aGroupHasOneConsumerAndKeepsItsOrder() throws Exception {
        Queue queue = atPeer.createQueue("grouped");
        int groups = 6;
        int perGroup = 10;
        List<MessageConsumer> consumers = List.of(session(there).createConsumer(queue), session(there).createConsumer(queue));
        awaitDemandHere("queue://grouped");
        MessageProducer producer = atWest.createProducer(queue);
        for (int number = 0; number < perGroup; number++) {
            for (int group = 0; group < groups; group++) {
                TextMessage message = atWest.createTextMessage("message " + number);
                message.setStringProperty("JMSXGroupID", "group " + group);
                message.setIntProperty("number", number);
                producer.send(message);
            }
        }
        Map<String, Integer> owners = new HashMap<>();
        Map<String, Integer> next = new HashMap<>();
        long until = System.nanoTime() + NetworkTest.PATIENCE_MS * 1_000_000L;
        for (int received = 0; received < groups * perGroup && System.nanoTime() < until;) {
            for (int consumer = 0; consumer < consumers.size(); consumer++) {
                Message message = consumers.get(consumer).receive(20);
                if (message == null) {
                    continue;
                }
                received++;
                String group = message.getStringProperty("JMSXGroupID");
                owners.putIfAbsent(group, consumer);
                assertEquals(consumer, owners.get(group), group + " has one consumer");
                assertEquals(next.merge(group, 1, Integer::sum) - 1, message.getIntProperty("number"), group + " is in order");
            }
        }
        assertEquals(groups, next.size());
        next.forEach((group, count) -> assertEquals(perGroup, count, group));
        assertEquals(Set.of(0, 1), Set.copyOf(owners.values()), "both take part");
    }

    @Test
    void higherPrioritiesGoFirst() throws Exception {
        Queue queue = atPeer.createQueue("prioritised");
        MessageProducer producer = atWest.createProducer(queue);
        for (int number = 0; number < 10; number++) {
            TextMessage message = atWest.createTextMessage("message " + number);
            producer.send(message, DeliveryMode.PERSISTENT, number, 0);
        }
        MessageConsumer consumer = atPeer.createConsumer(queue);
        for (int priority = 9; priority >= 0; priority--) {
            Message message = consumer.receive(NetworkTest.PATIENCE_MS);
            assertNotNull(message, "priority " + priority);
            assertEquals(priority, message.getJMSPriority());
        }
    }

    @Test
    void anExpiredMessageDoesNotCrossAndOthersKeepTheirTime() throws Exception {
        Queue queue = atPeer.createQueue("expiring");
        MessageProducer producer = atWest.createProducer(queue);
        producer.send(atWest.createTextMessage("too late"), DeliveryMode.PERSISTENT, 4, 100);
        TextMessage kept = atWest.createTextMessage("in time");
        producer.send(kept, DeliveryMode.PERSISTENT, 4, 600_000);
        long expiration = kept.getJMSExpiration();
        long first = System.currentTimeMillis() + 200;
        while (System.currentTimeMillis() < first) {
            Thread.sleep(20);
        }
        MessageConsumer consumer = atPeer.createConsumer(queue);
        TextMessage message = (TextMessage) consumer.receive(NetworkTest.PATIENCE_MS);
        assertNotNull(message);
        assertEquals("in time", message.getText());
        assertEquals(expiration, message.getJMSExpiration());
        NetworkTest.expectNothing(consumer);
    }

    @Test
    void aScheduledMessageCrossesOnceWhenItIsDue() throws Exception {
        Queue queue = atPeer.createQueue("scheduled");
        MessageConsumer consumer = atPeer.createConsumer(queue);
        awaitDemandHere("queue://scheduled");
        MessageProducer producer = atWest.createProducer(queue);
        TextMessage later = atWest.createTextMessage("later");
        later.setLongProperty(SCHEDULED_DELAY, 600);
        long sent = System.nanoTime();
        producer.send(later);
        producer.send(atWest.createTextMessage("at once"));
        TextMessage message = (TextMessage) consumer.receive(NetworkTest.PATIENCE_MS);
        assertNotNull(message);
        assertEquals("at once", message.getText());
        message = (TextMessage) consumer.receive(NetworkTest.PATIENCE_MS);
        long waited = (System.nanoTime() - sent) / 1_000_000;
        assertNotNull(message);
        assertEquals("later", message.getText());
        assertTrue(waited >= 600, "it came after " + waited + " ms");
        NetworkTest.expectNothing(consumer);
    }

    @Test
    void aLargeMessageArrivesWhole() throws Exception {
        byte[] body = new byte[LARGE_BYTES];
        new Random(1).nextBytes(body);
        for (Session[] way : new Session[][] {{atWest, atPeer}, {atPeer, atWest}}) {
            Queue queue = way[0].createQueue("large");
            BytesMessage message = way[0].createBytesMessage();
            message.writeBytes(body);
            way[0].createProducer(queue).send(message);
            MessageConsumer consumer = way[1].createConsumer(queue);
            BytesMessage received = (BytesMessage) consumer.receive(NetworkTest.PATIENCE_MS);
            assertNotNull(received);
            byte[] got = new byte[(int) received.getBodyLength()];
            received.readBytes(got);
            assertArrayEquals(body, got);
            NetworkTest.expectNothing(consumer);
            consumer.close();
        }
    }

    @Test
    void consumersWithSelectorsGetTheirMessagesAndOthersStay() throws Exception {
        Queue queue = atPeer.createQueue("coloured");
        MessageConsumer red = session(there).createConsumer(queue, "colour = 'red'");
        MessageConsumer blue = session(there).createConsumer(queue, "colour = 'blue'");
        awaitDemandHere("queue://coloured");
        MessageProducer producer = atWest.createProducer(queue);
        for (int number = 0; number < 10; number++) {
            for (String colour : List.of("green", "red", "blue")) {
                TextMessage message = atWest.createTextMessage("message " + number);
                message.setStringProperty("colour", colour);
                message.setIntProperty("number", number);
                producer.send(message);
            }
        }
        NetworkTest.expect(red, 0, 10);
        NetworkTest.expect(blue, 0, 10);
        NetworkTest.expectNothing(red);
        NetworkTest.expect(session(here).createConsumer(queue), 0, 10);
    }
}

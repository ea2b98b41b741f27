package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TemporaryTopic;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BooleanSupplier;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.advisory.AdvisorySupport;
import org.apache.activemq.advisory.ConsumerEventSource;
import org.apache.activemq.advisory.DestinationSource;
import org.apache.activemq.advisory.ProducerEventSource;
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;
import org.apache.activemq.command.ConnectionInfo;
import org.apache.activemq.command.ConsumerInfo;
import org.apache.activemq.command.DataStructure;
import org.apache.activemq.command.DestinationInfo;
import org.apache.activemq.command.ProducerInfo;
import org.apache.activemq.command.RemoveInfo;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What ActiveMQ's brokers tell of themselves (AdvisorySupport), and the classes of its client that listen to it. */
@DisplayName("ActiveMQ: advisories")
class AdvisoryTest extends JmsTest {
    private static final String TEXT_OF_DEATH = "too late";

    private Session session() throws JMSException {
        return autoAcknowledge(connect());
    }

    private static MessageConsumer listen(Session session, ActiveMQTopic topic) throws JMSException {
        return session.createConsumer(topic);
    }

    private static ActiveMQMessage advisory(MessageConsumer consumer) throws JMSException {
        ActiveMQMessage message = (ActiveMQMessage) receive(consumer);
        assertEquals("Advisory", message.getJMSType());
        assertNotNull(message.getStringProperty("originBrokerName"));
        assertNotNull(message.getStringProperty("originBrokerId"));
        assertTrue(message.getStringProperty("originBrokerURL").startsWith("tcp://"));
        return message;
    }

    private static <T extends DataStructure> T carried(ActiveMQMessage message, Class<T> kind) {
        return assertInstanceOf(kind, message.getDataStructure());
    }

    private static void await(String what, BooleanSupplier condition) throws InterruptedException {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (!condition.getAsBoolean()) {
            assertTrue(System.currentTimeMillis() < end, () -> "not within " + PATIENCE_MS + " ms: " + what);
            Thread.sleep(10);
        }
    }

    private ActiveMQDestination destination(String kind) {
        return kind.equals("queue") ? queue("watched") : topic("watched");
    }

    @ParameterizedTest(name = "{0}")
    @ValueSource(strings = {"queue", "topic"})
    @DisplayName("consumers are told of as they come and go, with how many there are")
    void consumers(String kind) throws Exception {
        ActiveMQDestination watched = destination(kind);
        MessageConsumer advisories = listen(session(), AdvisorySupport.getConsumerAdvisoryTopic(watched));
        Session session = session();
        MessageConsumer first = session.createConsumer(watched, "colour = 'red'");
        ActiveMQMessage told = advisory(advisories);
        ConsumerInfo info = carried(told, ConsumerInfo.class);
        assertEquals(watched, info.getDestination());
        assertEquals("colour = 'red'", info.getSelector());
        assertEquals(1, told.getIntProperty("consumerCount"));
        MessageConsumer second = session.createConsumer(watched);
        assertEquals(2, advisory(advisories).getIntProperty("consumerCount"));
        first.close();
        told = advisory(advisories);
        assertEquals(info.getConsumerId(), carried(told, RemoveInfo.class).getObjectId());
        assertEquals(1, told.getIntProperty("consumerCount"));

        MessageConsumer late = listen(session(), AdvisorySupport.getConsumerAdvisoryTopic(watched));
        told = advisory(late);
        carried(told, ConsumerInfo.class);
        assertEquals(1, told.getIntProperty("consumerCount"), "as many as there are now");
        second.close();
        carried(advisory(late), RemoveInfo.class);
        carried(advisory(advisories), RemoveInfo.class);
        assertSilent(advisories);
    }

    @ParameterizedTest(name = "{0}")
    @ValueSource(strings = {"queue", "topic"})
    @DisplayName("producers are told of as they come and go, also to those who listen later")
    void producers(String kind) throws Exception {
        ActiveMQDestination watched = destination(kind);
        MessageConsumer advisories = listen(session(), AdvisorySupport.getProducerAdvisoryTopic(watched));
        ActiveMQConnection connection = connect();
        MessageProducer producer = autoAcknowledge(connection).createProducer(watched);
        ActiveMQMessage told = advisory(advisories);
        ProducerInfo info = carried(told, ProducerInfo.class);
        assertEquals(watched, info.getDestination());
        assertEquals(1, told.getIntProperty("producerCount"));
        assertEquals(info.getProducerId(), carried(
                advisory(listen(session(), AdvisorySupport.getProducerAdvisoryTopic(watched))), ProducerInfo.class).getProducerId());
        producer.close();
        assertEquals(info.getProducerId(), carried(advisory(advisories), RemoveInfo.class).getObjectId());
        autoAcknowledge(connection).createProducer(watched);
        carried(advisory(advisories), ProducerInfo.class);
        breakOff(connection);
        told = advisory(advisories);
        carried(told, RemoveInfo.class);
        assertEquals(0, told.getIntProperty("producerCount"), "a broken connection takes its producers along");
    }

    @Test
    @DisplayName("connections are told of without their passwords, also to those who listen later")
    void connections() throws Exception {
        String name = unique("client");
        ActiveMQConnection connection = unstarted(factory());
        connection.setClientID(name);
        connection.start();
        MessageConsumer late = listen(session(), AdvisorySupport.getConnectionAdvisoryTopic());
        ConnectionInfo found = null;
        while (found == null) {
            DataStructure carried = advisory(late).getDataStructure();
            if (carried instanceof ConnectionInfo info && name.equals(info.getClientId())) {
                found = info;
            }
        }
        assertTrue(found.getPassword() == null || found.getPassword().isEmpty());
        connection.close();
        boolean gone = false;
        while (!gone) {
            DataStructure carried = advisory(late).getDataStructure();
            gone = carried instanceof RemoveInfo removed && removed.getObjectId().equals(found.getConnectionId());
        }
    }

    @Test
    @DisplayName("getDestinationSource knows what exists and hears of what comes and goes")
    void destinationSource() throws Exception {
        Session session = session();
        ActiveMQQueue earlier = queue("earlier");
        ActiveMQTopic earlierTopic = topic("earlier");
        session.createConsumer(earlier).close();
        session.createConsumer(earlierTopic);
        TemporaryQueue temporary = session.createTemporaryQueue();
        ActiveMQConnection connection = connect();
        DestinationSource source = connection.getDestinationSource();
        await("earlier queue", () -> source.getQueues().contains(earlier));
        await("earlier topic", () -> source.getTopics().contains(earlierTopic));
        await("temporary queue", () -> source.getTemporaryQueues().contains(temporary));
        List<String> events = new ArrayList<>();
        ActiveMQQueue later = queue("later");
        source.setDestinationListener(event -> {
            if (event.getDestination().equals(later)) {
                synchronized (events) {
                    events.add(event.isAddOperation() ? "came" : "went");
                }
            }
        });
        send(session, later, "hello");
        await("later queue", () -> source.getQueues().contains(later));
        TemporaryTopic topic = session.createTemporaryTopic();
        await("temporary topic", () -> source.getTemporaryTopics().contains(topic));
        topic.delete();
        await("no temporary topic", () -> !source.getTemporaryTopics().contains(topic));
        connection.destroyDestination(later);
        await("no later queue", () -> !source.getQueues().contains(later));
        synchronized (events) {
            assertEquals(List.of("came", "went"), events);
        }
        source.stop();
    }

    @Test
    @DisplayName("the client's sources of consumer and producer events work")
    void eventSources() throws Exception {
        ActiveMQQueue watched = queue("watched");
        ActiveMQConnection connection = connect();
        List<String> events = new ArrayList<>();
        ConsumerEventSource consumers = new ConsumerEventSource(connection, watched);
        consumers.setConsumerListener(event -> {
            synchronized (events) {
                events.add("consumers " + event.getConsumerCount() + (event.isStarted() ? " up" : " down"));
            }
        });
        consumers.start();
        ProducerEventSource producers = new ProducerEventSource(connection, watched);
        producers.setProducerListener(event -> {
            synchronized (events) {
                events.add("producers " + event.getProducerCount() + (event.isStarted() ? " up" : " down"));
            }
        });
        producers.start();
        Session session = session();
        for (String step : List.of("consumers 1 up", "consumers 0 down", "producers 1 up", "producers 0 down")) {
            switch (step) {
                case "consumers 1 up" -> session.createConsumer(watched).close();
                case "producers 1 up" -> session.createProducer(watched).close();
                default -> { }
            }
            await(step, () -> {
                synchronized (events) {
                    return events.contains(step);
                }
            });
        }
        synchronized (events) {
            assertEquals(List.of("consumers 1 up", "consumers 0 down", "producers 1 up", "producers 0 down"), events);
        }
        consumers.stop();
        producers.stop();
    }

    @Test
    @DisplayName("several advisory topics in one name, and patterns of them")
    void compositesAndPatterns() throws Exception {
        ActiveMQQueue watched = queue("watched");
        String consumerTopic = AdvisorySupport.getConsumerAdvisoryTopic(watched).getPhysicalName();
        String producerTopic = AdvisorySupport.getProducerAdvisoryTopic(watched).getPhysicalName();
        MessageConsumer both = listen(session(), new ActiveMQTopic(consumerTopic + "," + producerTopic));
        String pattern = consumerTopic.substring(0, consumerTopic.lastIndexOf('.')) + ".>";
        MessageConsumer matching = listen(session(), new ActiveMQTopic(pattern));
        Session session = session();
        session.createConsumer(watched);
        carried(advisory(both), ConsumerInfo.class);
        carried(advisory(matching), ConsumerInfo.class);
        session.createProducer(watched);
        carried(advisory(both), ProducerInfo.class);
        assertSilent(both);
        assertSilent(matching);
    }

    @Test
    @DisplayName("listening to advisories is no advisory")
    void noAdvisoriesOfAdvisories() throws Exception {
        ActiveMQTopic topic = AdvisorySupport.getConsumerAdvisoryTopic(topic("nobody"));
        MessageConsumer all = listen(session(), new ActiveMQTopic("ActiveMQ.Advisory.Consumer.Topic.ActiveMQ.>"));
        listen(session(), topic);
        assertSilent(all);
    }

    @ParameterizedTest(name = "{0}")
    @CsvSource({"queue", "topic"})
    @DisplayName("messages whose time was over are shown without their bodies")
    void expired(String kind) throws Exception {
        ActiveMQDestination watched = destination(kind);
        MessageConsumer advisories = listen(session(), AdvisorySupport.getExpiredMessageTopic(watched));
        Session session = session();
        ActiveMQConnection slow = connect("jms.prefetchPolicy.all=1");
        MessageConsumer consumer = autoAcknowledge(slow).createConsumer(watched);
        MessageProducer producer = session.createProducer(watched);
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        producer.send(session.createTextMessage("first"));
        Message second = session.createTextMessage(TEXT_OF_DEATH);
        producer.send(second, DeliveryMode.NON_PERSISTENT, 4, 1);
        Thread.sleep(50);
        assertEquals("first", text(receive(consumer)));
        assertSilent(consumer);
        ActiveMQMessage told = advisory(advisories);
        assertEquals(second.getJMSMessageID(), told.getStringProperty("orignalMessageId"));
        ActiveMQMessage shown = carried(told, ActiveMQMessage.class);
        assertEquals(second.getJMSMessageID(), shown.getJMSMessageID());
        assertNull(shown.getContent());
    }

    private ActiveMQDestination advised(String kind) {
        String name = "advised." + unique("a");
        return kind.equals("queue") ? new ActiveMQQueue(name) : new ActiveMQTopic(name);
    }

    private static void assertShown(ActiveMQDestination at, Message sent, ActiveMQMessage told) throws JMSException {
        assertEquals(sent.getJMSMessageID(), told.getStringProperty("orignalMessageId"));
        assertEquals(at.getQualifiedName(), told.getStringProperty("orignalDestination"));
        ActiveMQMessage shown = carried(told, ActiveMQMessage.class);
        assertEquals(sent.getJMSMessageID(), shown.getJMSMessageID());
        assertNull(shown.getContent());
    }

    @ParameterizedTest(name = "{0}, delivery mode {1}")
    @CsvSource({"queue,1", "queue,2"})
    @DisplayName("where a policy asks for it, messages are told of as they are taken in and acknowledged")
    void deliveredAndConsumed(String kind, int mode) throws Exception {
        seeDeliveredAndConsumed(kind, mode);
    }

    @ParameterizedTest(name = "delivery mode {1}")
    @CsvSource({"topic,1", "topic,2"})
    @PostroadOnly("of topics ActiveMQ tells what durable subscriptions acknowledge, and no other")
    @DisplayName("where a policy asks for it, messages of topics are told of, whatever the subscription")
    void deliveredAndConsumedOfTopics(String kind, int mode) throws Exception {
        seeDeliveredAndConsumed(kind, mode);
    }

    private void seeDeliveredAndConsumed(String kind, int mode) throws Exception {
        ActiveMQDestination watched = advised(kind);
        MessageConsumer delivered = listen(session(), AdvisorySupport.getMessageDeliveredAdvisoryTopic(watched));
        MessageConsumer consumed = listen(session(), AdvisorySupport.getMessageConsumedAdvisoryTopic(watched));
        Session session = session();
        Session reading = connect().createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = reading.createConsumer(watched);
        MessageProducer producer = session.createProducer(watched);
        Message sent = session.createTextMessage("m");
        producer.send(sent, mode, 4, 0);
        assertShown(watched, sent, advisory(delivered));
        Message received = receive(consumer);
        assertSilent(consumed);
        received.acknowledge();
        assertShown(watched, sent, advisory(consumed));
        assertSilent(delivered);
        assertSilent(consumed);
    }

    @ParameterizedTest(name = "{0}")
    @ValueSource(strings = {"queue", "topic"})
    @DisplayName("where a policy asks for it, what is not persistent and nobody reads is shown whole")
    void noConsumer(String kind) throws Exception {
        ActiveMQDestination watched = advised(kind);
        ActiveMQTopic topic = kind.equals("queue") ? AdvisorySupport.getNoQueueConsumersAdvisoryTopic(watched)
                : AdvisorySupport.getNoTopicConsumersAdvisoryTopic(watched);
        MessageConsumer lonely = listen(session(), topic);
        Session session = session();
        MessageProducer producer = session.createProducer(watched);
        producer.send(session.createTextMessage("persistent"));
        Message sent = session.createTextMessage("nobody");
        sent.setStringProperty("colour", "red");
        producer.send(sent, DeliveryMode.NON_PERSISTENT, 4, 0);
        Message told = receive(lonely);
        assertEquals("nobody", text(told));
        assertEquals("red", told.getStringProperty("colour"));
        assertEquals(sent.getJMSMessageID(), told.getJMSMessageID());
        assertEquals(topic, told.getJMSDestination());
        MessageConsumer consumer = session.createConsumer(watched);
        producer.send(session.createTextMessage("somebody"), DeliveryMode.NON_PERSISTENT, 4, 0);
        receive(consumer);
        assertSilent(lonely);
    }

    @Test
    @DisplayName("where a policy asks for it, a producer that has to wait is told of")
    void fastProducer() throws Exception {
        ActiveMQQueue watched = new ActiveMQQueue("advised.fast." + unique("a"));
        MessageConsumer advisories = listen(session(), AdvisorySupport.getFastProducerAdvisoryTopic(watched));
        ActiveMQConnection connection = connect();
        Session session = autoAcknowledge(connection);
        Thread sender = new Thread(() -> {
            try {
                MessageProducer producer = session.createProducer(watched);
                producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
                for (int number = 0; number < 3; number++) {
                    producer.send(session.createTextMessage("m" + number));
                }
            } catch (JMSException closed) {
                // The connection ends with the test.
            }
        });
        sender.start();
        ActiveMQMessage told = advisory(advisories);
        ProducerInfo info = carried(told, ProducerInfo.class);
        assertEquals(watched, info.getDestination());
        assertEquals(connection.getConnectionInfo().getConnectionId(), info.getProducerId().getParentId().getParentId());
        assertEquals(info.getProducerId().toString(), told.getStringProperty("producerId"));
        assertEquals(List.of("m0", "m1", "m2"), texts(session().createConsumer(watched), 3));
        sender.join(PATIENCE_MS);
    }

    @Test
    @DisplayName("messages that go to the dead letters are shown")
    void deadLetters() throws Exception {
        ActiveMQQueue watched = queue("watched");
        MessageConsumer advisories = listen(session(), AdvisorySupport.getMessageDLQdAdvisoryTopic(watched));
        ActiveMQConnection connection = connect("jms.redeliveryPolicy.maximumRedeliveries=0");
        Session session = transacted(connection);
        send(session, watched, "poison");
        session.commit();
        MessageConsumer consumer = session.createConsumer(watched);
        String id = receive(consumer).getJMSMessageID();
        session.rollback();
        assertSilent(consumer);
        assertEquals(id, carried(advisory(advisories), ActiveMQMessage.class).getJMSMessageID());
    }

    @Test
    @DisplayName("a temporary destination that somebody makes is told of at once")
    void temporaryDestinations() throws Exception {
        MessageConsumer advisories = listen(session(), AdvisorySupport.TEMP_DESTINATION_COMPOSITE_ADVISORY_TOPIC);
        TemporaryQueue queue = session().createTemporaryQueue();
        DestinationInfo info = null;
        while (info == null) {
            DestinationInfo next = carried(advisory(advisories), DestinationInfo.class);
            info = next.getDestination().equals(queue) ? next : null;
        }
        assertTrue(info.isAddOperation());
        String owner = info.getConnectionId().getValue();
        assertTrue(queue.getQueueName().startsWith(owner), owner);
    }
}

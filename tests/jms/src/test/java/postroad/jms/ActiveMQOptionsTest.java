package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Destination;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.BaseCommand;
import org.apache.activemq.command.Command;
import org.apache.activemq.command.ConnectionControl;
import org.apache.activemq.command.ControlCommand;
import org.apache.activemq.command.FlushCommand;
import org.apache.activemq.command.KeepAliveInfo;
import org.apache.activemq.command.Response;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What only ActiveMQ's client has: options in its URL and in names of destinations, and commands of its own. */
@DisplayName("ActiveMQ: options of its client")
class ActiveMQOptionsTest extends JmsTest {
    @Test
    @DisplayName("a prefetch given in the destination's name wins over the connection's")
    void prefetchInTheDestination() throws Exception {
        ActiveMQQueue queue = queue("option");
        Session session = autoAcknowledge(connect());
        send(session, queue, numbered("m", 3));
        MessageConsumer pulling = session.createConsumer(
                new ActiveMQQueue(queue.getQueueName() + "?consumer.prefetchSize=0"));
        Thread.sleep(100);
        assertEquals(List.of("m0", "m1", "m2"), texts(autoAcknowledge(connect()).createConsumer(queue), 3));
        assertNull(pulling.receiveNoWait());
    }

    @Test
    @DisplayName("INDIVIDUAL_ACKNOWLEDGE: a message that is acknowledged twice is acknowledged")
    void acknowledgedTwice() throws Exception {
        ActiveMQQueue queue = queue("twice");
        ActiveMQConnection connection = connect();
        CopyOnWriteArrayList<Exception> errors = new CopyOnWriteArrayList<>();
        connection.setExceptionListener(errors::add);
        send(autoAcknowledge(connection), queue, "m", "n");
        Session session = connection.createSession(false, ActiveMQSession.INDIVIDUAL_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(queue);
        Message first = receive(consumer);
        first.acknowledge();
        first.acknowledge();
        receive(consumer).acknowledge();
        assertSilent(consumer);
        assertEquals(List.of(), errors);
    }

    @ParameterizedTest(name = "{0} bytes")
    @ValueSource(ints = {10, 20_000, 2_000_000})
    @DisplayName("messages say when the broker received and sent them, and selectors see it")
    void brokerTimes(int bytes) throws Exception {
        ActiveMQQueue queue = queue("times");
        Session session = autoAcknowledge(connect());
        long before = System.currentTimeMillis() - 1;
        send(session, queue, "m".repeat(bytes));
        String selector = "JMSActiveMQBrokerInTime > " + before + " AND JMSActiveMQBrokerOutTime > " + before;
        Message message = receive(session.createConsumer(queue, selector));
        long in = message.getLongProperty("JMSActiveMQBrokerInTime");
        long out = message.getLongProperty("JMSActiveMQBrokerOutTime");
        assertTrue(before < in && in <= out && out <= System.currentTimeMillis() + 1, () -> before + " " + in + " " + out);
    }

    @Test
    @DisplayName("consumer.exclusive=true: one consumer gets all, the next takes over when it closes")
    void exclusiveConsumer() throws Exception {
        ActiveMQQueue queue = queue("exclusive");
        ActiveMQQueue exclusive = new ActiveMQQueue(queue.getQueueName() + "?consumer.exclusive=true");
        MessageConsumer first = autoAcknowledge(connect()).createConsumer(exclusive);
        MessageConsumer second = autoAcknowledge(connect()).createConsumer(exclusive);
        MessageConsumer plain = autoAcknowledge(connect()).createConsumer(queue);
        Session sender = autoAcknowledge(connect());
        send(sender, queue, numbered("a", 10));
        assertEquals(List.of(numbered("a", 10)), texts(first, 10));
        assertSilent(second);
        assertSilent(plain);
        first.close();
        send(sender, queue, numbered("b", 10));
        assertEquals(List.of(numbered("b", 10)), texts(second, 10));
        assertSilent(plain);
        second.close();
        send(sender, queue, numbered("c", 3));
        assertEquals(List.of(numbered("c", 3)), texts(plain, 3));
    }

    @ParameterizedTest(name = "consumer.dispatchAsync={0}")
    @ValueSource(booleans = {true, false})
    @DisplayName("both kinds of dispatch deliver everything, in order")
    void dispatchAsync(boolean async) throws Exception {
        Session session = autoAcknowledge(connect());
        ActiveMQQueue queue = queue("dispatch");
        MessageConsumer consumer = session.createConsumer(
                new ActiveMQQueue(queue.getQueueName() + "?consumer.dispatchAsync=" + async));
        send(session, queue, numbered("m", 50));
        assertEquals(List.of(numbered("m", 50)), texts(consumer, 50));
    }

    @ParameterizedTest(name = "{0}, delivery mode {1}")
    @CsvSource({"jms.useAsyncSend=true,2", "jms.useAsyncSend=true,1", "jms.alwaysSyncSend=true,1",
        "jms.producerWindowSize=4096,1", "jms.producerWindowSize=4096&jms.useAsyncSend=true,2",
        "jms.dispatchAsync=false,2", "jms.useDedicatedTaskRunner=true,2", "jms.copyMessageOnSend=false,2"})
    @DisplayName("every way to send delivers everything, in order")
    void waysToSend(String option, int deliveryMode) throws Exception {
        Session session = autoAcknowledge(connect(option));
        ActiveMQQueue queue = queue("send");
        MessageProducer producer = session.createProducer(queue);
        producer.setDeliveryMode(deliveryMode);
        String padding = "p".repeat(1024);
        for (String text : numbered("m", 300)) {
            Message message = session.createTextMessage(text);
            message.setStringProperty("padding", padding);
            producer.send(message);
        }
        assertEquals(List.of(numbered("m", 300)), texts(session.createConsumer(queue), 300));
        assertEquals(deliveryMode == DeliveryMode.PERSISTENT, DeliveryMode.PERSISTENT == producer.getDeliveryMode());
    }

    @Test
    @DisplayName("jms.optimizeAcknowledge: acknowledged in batches, nothing left after the close")
    void optimizeAcknowledge() throws Exception {
        Connection connection = connect("jms.optimizeAcknowledge=true", "jms.prefetchPolicy.all=100");
        ActiveMQQueue queue = queue("optimised");
        Session session = autoAcknowledge(connection);
        send(session, queue, numbered("m", 530));
        assertEquals(List.of(numbered("m", 530)), texts(session.createConsumer(queue), 530));
        connection.close();
        assertEmpty(queue);
    }

    @Test
    @DisplayName("jms.sendAcksAsync=false: each acknowledgement is confirmed by the broker")
    void synchronousAcknowledgement() throws Exception {
        Connection connection = connect("jms.sendAcksAsync=false");
        ActiveMQQueue queue = queue("acks");
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        send(session, queue, numbered("m", 20));
        MessageConsumer consumer = session.createConsumer(queue);
        for (int number = 0; number < 20; number++) {
            receive(consumer).acknowledge();
        }
        breakOff(connection);
        assertEmpty(queue);
    }

    @Test
    @DisplayName("consumer.priority: the consumer of the highest priority is served alone while it has room")
    void consumerPriority() throws Exception {
        String name = unique("consumers");
        MessageConsumer low = autoAcknowledge(connect()).createConsumer(new ActiveMQQueue(name));
        MessageConsumer high =
                autoAcknowledge(connect()).createConsumer(new ActiveMQQueue(name + "?consumer.priority=10"));
        send(autoAcknowledge(connect()), new ActiveMQQueue(name), numbered("m", 20));
        assertEquals(List.of(numbered("m", 20)), texts(high, 20));
        assertSilent(low);
    }

    @ParameterizedTest(name = "{0}")
    @MethodSource("postroad.jms.MessageTypesTest#bodies")
    @DisplayName("JMS 3.11: a body comes through a compressing producer unchanged")
    void compressedBodyArrivesUnchanged(MessageTypesTest.Body body) throws Exception {
        Session sender = autoAcknowledge(connect("jms.useCompression=true"));
        Session receiver = autoAcknowledge(connect());
        Destination destination = queue("compressed");
        sender.createProducer(destination).send(body.maker().make(sender));
        body.checker().check(receive(receiver.createConsumer(destination)));
    }

    @Test
    @DisplayName("commands that mean nothing to the broker do not end the connection")
    void unknownCommands() throws Exception {
        ActiveMQConnection connection = unstarted(factory());
        List<Exception> errors = new CopyOnWriteArrayList<>();
        connection.setExceptionListener(errors::add);
        connection.start();
        Session session = autoAcknowledge(connection);
        ControlCommand control = new ControlCommand();
        control.setCommand("no such thing");
        for (Command command : new BaseCommand[] {new FlushCommand(), control, new KeepAliveInfo(),
                new ConnectionControl()}) {
            connection.asyncSendPacket(command);
            ActiveMQQueue queue = queue("goes.on");
            send(session, queue, "m");
            assertEquals("m", text(receive(session.createConsumer(queue))));
        }
        assertEquals(List.of(), errors);
    }

    @Test
    @DisplayName("a command that asks for a response gets one")
    void flushIsAnswered() throws Exception {
        ActiveMQConnection connection = connect();
        Response response = connection.syncSendPacket(new FlushCommand());
        assertNotNull(response);
        assertTrue(!response.isException(), response::toString);
    }

    @Test
    @DisplayName("the broker gives its name and version (JMS 6.1.9), and the client reads them")
    void brokerInfo() throws Exception {
        ActiveMQConnection connection = connect();
        assertNotNull(connection.getBrokerInfo(), "no BrokerInfo came");
        assertNotNull(connection.getBrokerInfo().getBrokerName());
        assertNotNull(connection.getBrokerInfo().getBrokerId());
    }
}

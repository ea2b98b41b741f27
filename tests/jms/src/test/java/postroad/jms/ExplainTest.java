package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.XAConnection;
import jakarta.jms.XASession;
import java.util.Arrays;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQXAConnectionFactory;
import org.apache.activemq.ScheduledMessage;
import org.apache.activemq.command.ActiveMQQueue;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** {@code postroad ctl explain}: docs/features/admin-api.md. */
@NeedsOwnBroker
@DisplayName("Explain: why a message is not delivered, and the smallest change")
class ExplainTest extends JmsTest {
    private static Broker broker;

    @BeforeAll
    static void start() throws Exception {
        broker = Broker.launch("explain");
    }

    @AfterAll
    static void stop() throws Exception {
        broker.close();
    }

    /** Asks until all of it is said: a message may be on its way to the broker. */
    private static String explained(String[] words, String... parts) throws Exception {
        String[] command = new String[words.length + 2];
        command[0] = "ctl";
        command[1] = "explain";
        System.arraycopy(words, 0, command, 2, words.length);
        long end = System.nanoTime() + PATIENCE_MS * 1_000_000L;
        while (true) {
            String said = broker.command(command);
            boolean all = Arrays.stream(parts).allMatch(said::contains);
            if (all || System.nanoTime() > end) {
                assertTrue(all, () -> String.join(" | ", parts) + " is not in: " + said);
                return said;
            }
            Thread.sleep(50);
        }
    }

    private Session session(boolean transacted, int mode) throws Exception {
        ActiveMQConnection connection = unstarted(factoryFor(broker.url()));
        connection.start();
        return connection.createSession(transacted, mode);
    }

    private static String[] of(ActiveMQQueue queue) throws Exception {
        return new String[] {"queue", queue.getQueueName()};
    }

    @Test
    @DisplayName("no credit: how many messages are not acknowledged; an acknowledgement delivers the next")
    void noCredit() throws Exception {
        ActiveMQQueue orders = new ActiveMQQueue("credit");
        Session session = session(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(new ActiveMQQueue("credit?consumer.prefetchSize=1"));
        send(session, orders, "one", "two", "three");
        Message first = consumer.receive(PATIENCE_MS);
        explained(of(orders), "prefetch is full: 2 messages are not acknowledged, the oldest for ", "Smallest change: Have the consumer acknowledge");
        first.acknowledge();
        assertEquals("two", text(consumer.receive(PATIENCE_MS)));
        explained(new String[] {"message", first.getJMSMessageID().replaceFirst(":1$", ":3")}, "has had the message for ");
    }

    @Test
    @DisplayName("a message of a group that another consumer has, and an exclusive consumer")
    void owners() throws Exception {
        ActiveMQQueue orders = new ActiveMQQueue("groups");
        Session session = session(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer owner = session.createConsumer(new ActiveMQQueue("groups?consumer.prefetchSize=1"));
        MessageProducer producer = session.createProducer(orders);
        for (String body : new String[] {"one", "two", "three"}) {
            TextMessage message = session.createTextMessage(body);
            message.setStringProperty("JMSXGroupID", "g7");
            producer.send(message);
        }
        assertEquals("one", text(owner.receive(PATIENCE_MS)));
        Session other = sessionAt(broker);
        MessageConsumer waiting = other.createConsumer(orders);
        explained(of(orders), "group g7 belongs to the consumer ID:", "None of the 2 consumers");
        owner.close();
        assertTrue(text(waiting.receive(PATIENCE_MS)).length() > 0);

        MessageConsumer exclusive = session.createConsumer(
                new ActiveMQQueue("alone?consumer.exclusive=true&consumer.prefetchSize=1"));
        ActiveMQQueue alone = new ActiveMQQueue("alone");
        send(session, alone, "one", "two", "three");
        assertEquals("one", text(exclusive.receive(PATIENCE_MS)));
        MessageConsumer second = other.createConsumer(alone);
        explained(of(alone), "The exclusive consumer ID:", "has the queue");
        exclusive.close();
        assertTrue(text(second.receive(PATIENCE_MS)).length() > 0);
    }

    @Test
    @DisplayName("a message of an open transaction, sent or acknowledged in it")
    void transaction() throws Exception {
        ActiveMQQueue orders = new ActiveMQQueue("open");
        Session session = session(true, Session.SESSION_TRANSACTED);
        send(sessionAt(broker), orders, "before");
        MessageConsumer consumer = session.createConsumer(orders);
        Message received = consumer.receive(PATIENCE_MS);
        explained(new String[] {"message", received.getJMSMessageID()}, "queue://open", "has had the message for ",
                "Smallest change: Have the consumer acknowledge, or end it: the message comes back.");
        session.commit();
        TextMessage sent = session.createTextMessage("sent");
        session.createProducer(orders).send(sent);
        explained(new String[] {"message", sent.getJMSMessageID(), "--queue", "open"}, "1 message is in an open transaction of the connection ID:", "Smallest change: Commit or roll back the transaction.");
        session.commit();
        assertEquals("sent", text(consumer.receive(PATIENCE_MS)));
        session.commit();
    }

    private record Branch(byte[] global) implements Xid {
        @Override
        public int getFormatId() {
            return 42;
        }

        @Override
        public byte[] getGlobalTransactionId() {
            return global;
        }

        @Override
        public byte[] getBranchQualifier() {
            return new byte[] {7};
        }
    }

    @Test
    @DisplayName("a message of a prepared branch is named with its branch, and the operator's commit delivers it")
    void prepared() throws Exception {
        ActiveMQQueue orders = new ActiveMQQueue("prepared");
        MessageConsumer consumer = sessionAt(broker).createConsumer(orders);
        try (XAConnection connection = new ActiveMQXAConnectionFactory(broker.url()).createXAConnection()) {
            connection.start();
            XASession session = connection.createXASession();
            XAResource resource = session.getXAResource();
            Xid branch = new Branch(new byte[] {1, 2, (byte) 0xfe});
            resource.start(branch, XAResource.TMNOFLAGS);
            send(session, orders, "in doubt");
            resource.end(branch, XAResource.TMSUCCESS);
            assertEquals(XAResource.XA_OK, resource.prepare(branch));
            String said = explained(of(orders), "A message is in the prepared transaction 42:0102fe:07");
            Matcher remedy = Pattern.compile("`postroad (ctl transactions commit \\S+)`").matcher(said);
            assertTrue(remedy.find(), said);
            broker.command(remedy.group(1).split(" "));
            assertEquals("in doubt", text(consumer.receive(PATIENCE_MS)));
        }
    }

    @Test
    @DisplayName("a client prepares a branch and leaves: its messages are named with the branch, until the operator's rollback delivers them")
    void preparedAndLeft() throws Exception {
        ActiveMQQueue orders = new ActiveMQQueue("taken");
        send(sessionAt(broker), orders, "one", "two", "three");
        Message second;
        try (XAConnection connection = new ActiveMQXAConnectionFactory(broker.url()).createXAConnection()) {
            connection.start();
            XASession session = connection.createXASession();
            XAResource resource = session.getXAResource();
            Xid branch = new Branch(new byte[] {3});
            resource.start(branch, XAResource.TMNOFLAGS);
            MessageConsumer consumer = session.createConsumer(new ActiveMQQueue("taken?consumer.prefetchSize=1"));
            assertEquals("one", text(consumer.receive(PATIENCE_MS)));
            second = consumer.receive(PATIENCE_MS);
            resource.end(branch, XAResource.TMSUCCESS);
            assertEquals(XAResource.XA_OK, resource.prepare(branch));
            // The prefetch is free again: what is in doubt does not keep the next message from the client.
            String third = second.getJMSMessageID().replaceFirst(":2$", ":3");
            explained(new String[] {"message", third, "--queue", "taken"}, "has had the message for ");
            explained(of(orders), "2 messages were settled in the prepared transaction 42:03:07");
        }
        String named = "settled in the prepared transaction 42:03:07, which is in doubt.";
        explained(of(orders), "No consumer is attached.", "2 messages were " + named);
        String said = explained(new String[] {"message", second.getJMSMessageID(), "--queue", "taken"}, "A message was " + named);
        Matcher remedy = Pattern.compile("or `(rollback \\S+)`").matcher(said);
        assertTrue(remedy.find(), said);
        broker.command(("ctl transactions " + remedy.group(1)).split(" "));
        MessageConsumer consumer = sessionAt(broker).createConsumer(orders);
        for (String text : new String[] {"one", "two", "three"}) {
            assertEquals(text, text(consumer.receive(PATIENCE_MS)));
        }
    }

    @Test
    @DisplayName("a scheduled message is delayed until its time")
    void scheduled() throws Exception {
        ActiveMQQueue orders = new ActiveMQQueue("later");
        Session session = sessionAt(broker);
        MessageConsumer consumer = session.createConsumer(orders);
        TextMessage message = session.createTextMessage("later");
        message.setLongProperty(ScheduledMessage.AMQ_SCHEDULED_DELAY, 3_600_000);
        session.createProducer(orders).send(message);
        explained(new String[] {"message", message.getJMSMessageID()}, "queue://later", "The message is delayed until 20", "Smallest change: Wait until it is due.");
        consumer.close();
    }

    @Test
    @DisplayName("a queue that grows: consumers with a small prefetch wait for credit, and others give messages back")
    void growth() throws Exception {
        ActiveMQQueue orders = new ActiveMQQueue("narrow");
        Session session = session(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(new ActiveMQQueue("narrow?consumer.prefetchSize=1"));
        Session sending = sessionAt(broker);
        for (int number = 0; number < 80; number++) {
            send(sending, orders, "one", "two");
            Message message = consumer.receive(PATIENCE_MS);
            Thread.sleep(60);
            message.acknowledge();
        }
        explained(of(orders), "Last minute: The queue grows: ", "Consumers wait for credit: a prefetch of ", "To keep up: Raise the prefetch");
        consumer.close();

        // A consumer that ends before it acknowledges gives its message back.
        ActiveMQQueue failing = new ActiveMQQueue("failing?consumer.prefetchSize=1");
        for (int number = 0; number < 20; number++) {
            send(sending, new ActiveMQQueue("failing"), "one", "two");
            Session giving = session(false, Session.CLIENT_ACKNOWLEDGE);
            giving.createConsumer(failing).receive(PATIENCE_MS);
            giving.close();
            Thread.sleep(200);
        }
        session(false, Session.CLIENT_ACKNOWLEDGE).createConsumer(failing).receive(PATIENCE_MS);
        explained(of(new ActiveMQQueue("failing")), "Consumers give messages back: ");
    }
}

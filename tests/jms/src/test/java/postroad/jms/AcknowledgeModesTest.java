package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** JMS 2.0 section 6.2: what comes again, what does not, and how it is marked. */
@DisplayName("JMS 6.2: acknowledgement and redelivery")
class AcknowledgeModesTest extends PlainTest {
    /** Acknowledges some of the three received messages. */
    interface Acknowledgement {
        void of(Message first, Message second, Message third) throws JMSException;
    }

    record Rule(String name, int mode, Acknowledgement acknowledgement, List<String> comesAgain) {
        @Override
        public String toString() {
            return name;
        }
    }

    /** Of five messages three are received and acknowledged as said, then the session is closed. */
    static List<Rule> rules() {
        return List.of(
                new Rule("AUTO: what was received is gone", Session.AUTO_ACKNOWLEDGE,
                        (first, second, third) -> { }, List.of("m3 1", "m4 1")),
                new Rule("DUPS_OK: what was received is gone once the session is closed",
                        Session.DUPS_OK_ACKNOWLEDGE, (first, second, third) -> { }, List.of("m3 1", "m4 1")),
                new Rule("CLIENT: nothing acknowledged, all comes again", Session.CLIENT_ACKNOWLEDGE,
                        (first, second, third) -> { }, List.of("m0 2*", "m1 2*", "m2 2*", "m3 1", "m4 1")),
                new Rule("CLIENT: acknowledging any message acknowledges all received", Session.CLIENT_ACKNOWLEDGE,
                        (first, second, third) -> first.acknowledge(), List.of("m3 1", "m4 1")),
                new Rule("INDIVIDUAL: nothing acknowledged, all comes again", INDIVIDUAL,
                        (first, second, third) -> { }, List.of(seen("m0"), seen("m1"), seen("m2"), "m3 1", "m4 1")),
                new Rule("INDIVIDUAL: only the acknowledged one is gone", INDIVIDUAL,
                        (first, second, third) -> second.acknowledge(), List.of(seen("m0"), seen("m2"), "m3 1", "m4 1")),
                new Rule("INDIVIDUAL: acknowledged in reverse order", INDIVIDUAL,
                        (first, second, third) -> {
                            third.acknowledge();
                            second.acknowledge();
                            first.acknowledge();
                        }, List.of("m3 1", "m4 1")));
    }

    /** How a message comes again that the application saw, after an orderly end of its session in mode {@link #INDIVIDUAL}. */
    private static String seen(String text) {
        return text + (SAYS_WHAT_WAS_SEEN ? " 2*" : " 1");
    }

    static List<Arguments> rulesAndEndings() {
        return rules().stream().flatMap(rule -> java.util.stream.Stream.of(
                Arguments.of(rule, "session"), Arguments.of(rule, "connection"))).toList();
    }

    @ParameterizedTest(name = "{0}, {1} closed")
    @MethodSource("rulesAndEndings")
    @DisplayName("JMS 6.2.10: queue, after the consumer was closed")
    void queueAfterClose(Rule rule, String closed) throws Exception {
        Connection connection = connect();
        Queue queue = queue("closed");
        send(autoAcknowledge(connection), queue, numbered("m", 5));
        Session session = connection.createSession(false, rule.mode());
        MessageConsumer consumer = session.createConsumer(queue);
        rule.acknowledgement().of(receive(consumer), receive(consumer), receive(consumer));
        if (closed.equals("session")) {
            session.close();
        } else {
            connection.close();
        }
        Session next = autoAcknowledge(connect());
        MessageConsumer rest = next.createConsumer(queue);
        assertEquals(rule.comesAgain(), deliveries(rest, rule.comesAgain().size()));
        assertSilent(rest);
    }

    @ParameterizedTest(name = "{0}")
    @MethodSource("rules")
    @DisplayName("JMS 8.3.3: durable subscription, after the session was closed")
    void durableSubscriptionAfterClose(Rule rule) throws Exception {
        Connection connection = named(unique("client"));
        Topic topic = topic("durable");
        Session session = connection.createSession(false, rule.mode());
        MessageConsumer consumer = session.createDurableSubscriber(topic, "subscription");
        send(autoAcknowledge(connection), topic, numbered("m", 5));
        rule.acknowledgement().of(receive(consumer), receive(consumer), receive(consumer));
        session.close();
        Session next = autoAcknowledge(connection);
        MessageConsumer rest = next.createDurableSubscriber(topic, "subscription");
        assertEquals(rule.comesAgain(), deliveries(rest, rule.comesAgain().size()));
        assertSilent(rest);
        rest.close();
        next.unsubscribe("subscription");
    }

    @ParameterizedTest(name = "{0}")
    @MethodSource("rules")
    @DisplayName("JMS 6.2.10: a connection that breaks redelivers what was received, marked, and keeps order")
    void brokenConnection(Rule rule) throws Exception {
        Queue queue = queue("broken");
        send(autoAcknowledge(connect()), queue, numbered("m", 5));
        Connection broken = breakable("jms.prefetchPolicy.all=10");
        Session session = broken.createSession(false, rule.mode());
        MessageConsumer consumer = session.createConsumer(queue);
        rule.acknowledgement().of(receive(consumer), receive(consumer), receive(consumer));
        // A round trip, so that acknowledgements sent without waiting have arrived.
        send(session, queue("round.trip"), "done");
        breakOff(broken);

        MessageConsumer rest = autoAcknowledge(connect()).createConsumer(queue);
        // DUPS_OK has acknowledged nothing yet, or all; both are right (JMS 6.2.9).
        List<String> must = rule.mode() == Session.DUPS_OK_ACKNOWLEDGE ? List.of("m3", "m4")
                : rule.comesAgain().stream().map(delivery -> delivery.split(" ")[0]).toList();
        java.util.ArrayList<String> came = new java.util.ArrayList<>();
        for (Message message = receive(rest); ; message = receive(rest)) {
            came.add(text(message));
            // m3 and m4 were sent ahead but never received: either mark is right without their client's word.
            if (text(message).compareTo("m3") < 0) {
                assertEquals(text(message) + " 2*", delivery(message));
            }
            if (text(message).equals("m4")) {
                break;
            }
        }
        assertSilent(rest);
        if (rule.mode() == Session.DUPS_OK_ACKNOWLEDGE) {
            assertTrue(came.equals(must) || came.equals(List.of("m0", "m1", "m2", "m3", "m4")), came::toString);
        } else {
            assertEquals(must, came);
        }
    }

    @ParameterizedTest(name = "{0} sessions closed")
    @ValueSource(ints = {1, 3})
    @DisplayName("JMS 3.5.11: JMSXDeliveryCount counts each delivery to the application")
    void deliveryCountGrows(int times) throws Exception {
        Connection connection = connect();
        Queue queue = queue("count");
        send(autoAcknowledge(connection), queue, "m");
        for (int delivered = 1; delivered <= times; delivered++) {
            Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
            String want = "m " + delivered + (delivered == 1 ? "" : "*");
            assertEquals(want, delivery(receive(session.createConsumer(queue))));
            session.close();
        }
        MessageConsumer last = autoAcknowledge(connection).createConsumer(queue);
        assertEquals("m " + (times + 1) + "*", delivery(receive(last)));
        assertSilent(last);
    }

    @Test
    @DisplayName("JMS 3.8.1: a selector sees the delivery count that the consumer is given")
    void selectedByDeliveryCount() throws Exception {
        Connection connection = connect();
        Queue queue = queue("poison");
        send(autoAcknowledge(connection), queue, "m");
        for (int delivered = 1; delivered <= 2; delivered++) {
            Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
            receive(session.createConsumer(queue, "JMSXDeliveryCount <= 2"));
            session.close();
        }
        Session session = autoAcknowledge(connection);
        assertSilent(session.createConsumer(queue, "JMSXDeliveryCount <= 2"));
        assertSilent(session.createConsumer(queue, "JMSRedelivered = FALSE"));
        assertEquals("m 3*", delivery(receive(session.createConsumer(queue, "JMSXDeliveryCount > 2 AND JMSRedelivered = TRUE"))));
    }

    @Test
    @DisplayName("JMS 3.4.7: messages that were only sent ahead are not redelivered ones")
    void prefetchedOnlyIsNotRedelivered() throws Exception {
        Connection connection = connect("jms.prefetchPolicy.all=100");
        Queue queue = queue("ahead");
        send(autoAcknowledge(connection), queue, numbered("m", 3));
        for (int attempt = 0; attempt < 3; attempt++) {
            Session idle = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
            MessageConsumer consumer = idle.createConsumer(queue);
            Thread.sleep(100);
            consumer.close();
            idle.close();
        }
        MessageConsumer consumer = autoAcknowledge(connection).createConsumer(queue);
        assertEquals(List.of("m0 1", "m1 1", "m2 1"), deliveries(consumer, 3));
    }

    @ParameterizedTest(name = "{0}")
    @ValueSource(strings = {"CLIENT", "INDIVIDUAL"})
    @DisplayName("JMS 6.2.11: recover() delivers the unacknowledged again, in order")
    void recover(String mode) throws Exception {
        Connection connection = connect(AT_ONCE);
        Queue queue = queue("recover");
        send(autoAcknowledge(connection), queue, numbered("m", 4));
        Session session = connection.createSession(false,
                mode.equals("CLIENT") ? Session.CLIENT_ACKNOWLEDGE : INDIVIDUAL);
        MessageConsumer consumer = session.createConsumer(queue);
        receive(consumer).acknowledge();
        assertEquals(List.of("m1 1", "m2 1"), deliveries(consumer, 2));
        session.recover();
        assertEquals(List.of("m1 2*", "m2 2*"), deliveries(consumer, 2));
        session.recover();
        assertEquals(List.of("m1 3*", "m2 3*"), deliveries(consumer, 2));
        Message last = receive(consumer);
        assertEquals("m3 1", delivery(last));
        session.close();
    }

    @ParameterizedTest(name = "mode {0}")
    @ValueSource(ints = {Session.CLIENT_ACKNOWLEDGE, INDIVIDUAL})
    @DisplayName("JMS 8.8: a closed consumer's unacknowledged messages go to the next consumer, once its client gives them back")
    void closedConsumer(int mode) throws Exception {
        Connection connection = connect();
        Queue queue = queue("consumer");
        send(autoAcknowledge(connection), queue, numbered("m", 4));
        Session session = connection.createSession(false, mode);
        MessageConsumer consumer = session.createConsumer(queue);
        Message first = receive(consumer);
        Message second = receive(consumer);
        assertEquals(List.of("m0 1", "m1 1"), List.of(delivery(first), delivery(second)));
        consumer.close();
        MessageConsumer next = session.createConsumer(queue);
        if (CLOSED_CONSUMER_GIVES_BACK) {
            assertEquals(List.of("m0 2*", "m1 2*", "m2 1", "m3 1"), deliveries(next, 4));
            return;
        }
        assertEquals("m2 1", delivery(receive(next)));
        first.acknowledge();
        second.acknowledge();
        session.close();
        MessageConsumer rest = autoAcknowledge(connection).createConsumer(queue);
        assertEquals(mode == INDIVIDUAL ? "m2 1" : "m3 1", delivery(receive(rest)));
    }

    @Test
    @DisplayName("JMS 6.2.10: unacknowledged messages go to another waiting consumer at once")
    void waitingConsumerTakesOver() throws Exception {
        Queue queue = queue("over");
        Connection connection = connect("jms.prefetchPolicy.all=10");
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer first = session.createConsumer(queue);
        send(autoAcknowledge(connect()), queue, numbered("m", 4));
        assertEquals(List.of("m0 1", "m1 1"), deliveries(first, 2));
        MessageConsumer second = autoAcknowledge(connect()).createConsumer(queue);
        session.close();
        List<String> inOrder = List.of("m0 2*", "m1 2*");
        List<String> back = deliveries(second, 2);
        // Given back one by one they come in that order, or in the queue's if the second consumer's credit came behind them.
        assertEquals(back.equals(inOrder) ? inOrder : givenBack("m0 2*", "m1 2*"), back);
        assertEquals(List.of("m2 1", "m3 1"), deliveries(second, 2));
    }

    @Test
    @DisplayName("JMS 8.7: AUTO with a listener that throws: redelivered and counted, if its client says so")
    void listenerThatThrows() throws Exception {
        Connection connection = connect(AT_ONCE);
        Queue queue = queue("listener");
        Session session = autoAcknowledge(connection);
        LinkedBlockingQueue<String> seen = new LinkedBlockingQueue<>();
        AtomicInteger deliveries = new AtomicInteger();
        session.createConsumer(queue).setMessageListener(message -> {
            try {
                seen.add(delivery(message));
                if (deliveries.incrementAndGet() < 3) {
                    throw new IllegalArgumentException("not yet");
                }
            } catch (JMSException unreadable) {
                seen.add(unreadable.toString());
            }
        });
        send(autoAcknowledge(connection), queue, "m");
        List<String> wanted = COUNTS_WHAT_A_LISTENER_THROWS ? List.of("m 1", "m 2*", "m 3*") : List.of("m 1", "m 1", "m 1");
        for (String want : wanted) {
            assertEquals(want, seen.poll(PATIENCE_MS, TimeUnit.MILLISECONDS));
        }
        session.close();
        assertEmpty(queue);
    }

    @Test
    @DisplayName("JMS 6.2.10: nothing comes again after acknowledging in several consumers of one session")
    void acknowledgeSpansTheSession() throws Exception {
        Connection connection = connect();
        Queue one = queue("one");
        Queue two = queue("two");
        send(autoAcknowledge(connection), one, "a");
        send(autoAcknowledge(connection), two, "b");
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer fromOne = session.createConsumer(one);
        MessageConsumer fromTwo = session.createConsumer(two);
        receive(fromOne);
        receive(fromTwo).acknowledge();
        session.close();
        assertEmpty(one);
        assertEmpty(two);
    }
}

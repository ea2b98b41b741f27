package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.TemporaryTopic;
import jakarta.jms.Topic;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** Topics by AMQP: subscriptions that end with their consumer, and those that do not. */
class QpidTopicTest extends QpidTest {
    @Test
    void everySubscriberGetsACopyFromItsSubscriptionOn() throws Exception {
        Session session = autoAcknowledge(connect());
        Topic topic = session.createTopic(unique("copy"));
        send(session, topic, "too early");
        MessageConsumer one = session.createConsumer(topic);
        MessageConsumer other = session.createConsumer(topic);
        send(autoAcknowledge(connect()), topic, "a", "b");
        assertEquals(List.of("a", "b"), texts(one, 2));
        assertEquals(List.of("a", "b"), texts(other, 2));
    }

    @Test
    void aSubscriberIsSparedWhatItsOwnConnectionSends() throws Exception {
        Session session = autoAcknowledge(connect());
        Topic topic = session.createTopic(unique("local"));
        MessageConsumer consumer = session.createConsumer(topic, null, true);
        send(session, topic, "mine");
        send(autoAcknowledge(connect()), topic, "theirs");
        assertEquals(List.of("theirs"), texts(consumer, 1));
        assertSilent(consumer);
    }

    private Connection durable(String client) throws JMSException {
        return connect("jms.clientID=" + client);
    }

    @Test
    void aDurableSubscriptionKeepsWhatComesWhileNobodyReads() throws Exception {
        String client = unique("client");
        Connection connection = durable(client);
        Session session = autoAcknowledge(connection);
        Topic topic = session.createTopic(unique("durable"));
        session.createDurableSubscriber(topic, "news").close();
        send(session, topic, "a", "b");
        connection.close();

        Session again = autoAcknowledge(durable(client));
        MessageConsumer consumer = again.createDurableSubscriber(topic, "news");
        assertEquals(List.of("a", "b"), texts(consumer, 2));
        consumer.close();
        again.unsubscribe("news");
        send(again, topic, "c");
        assertSilent(again.createDurableSubscriber(topic, "news"));
    }

    @Test
    void aDurableSubscriptionTakesWhatItsSelectorMatches() throws Exception {
        Session session = autoAcknowledge(durable(unique("client")));
        Topic topic = session.createTopic(unique("selected"));
        session.createDurableSubscriber(topic, "some", "JMSCorrelationID = 'yes'", false).close();
        var producer = session.createProducer(topic);
        for (String id : List.of("yes", "no", "yes")) {
            var message = session.createTextMessage(id);
            message.setJMSCorrelationID(id);
            producer.send(message);
        }
        MessageConsumer consumer = session.createDurableSubscriber(topic, "some", "JMSCorrelationID = 'yes'", false);
        assertEquals(List.of("yes", "yes"), texts(consumer, 2));
        assertSilent(consumer);
    }

    @Test
    void aSharedSubscriptionDealsItsMessagesOut() throws Exception {
        Topic topic = autoAcknowledge(connect()).createTopic(unique("shared"));
        MessageConsumer one = autoAcknowledge(connect("jms.prefetchPolicy.all=1")).createSharedConsumer(topic, "team");
        MessageConsumer two = autoAcknowledge(connect("jms.prefetchPolicy.all=1")).createSharedConsumer(topic, "team");
        MessageConsumer alone = autoAcknowledge(connect()).createSharedConsumer(topic, "other");
        send(autoAcknowledge(connect()), topic, "a", "b");
        Set<String> team = Set.of(text(receive(one)), text(receive(two)));
        assertEquals(Set.of("a", "b"), team);
        assertEquals(List.of("a", "b"), texts(alone, 2));
        assertSilent(one);
    }

    @Test
    void aSharedDurableSubscriptionKeepsWhatComesWhileNobodyReads() throws Exception {
        for (boolean withId : new boolean[] {true, false}) {
            String[] options = withId ? new String[] {"jms.clientID=" + unique("client")} : new String[0];
            String name = unique("name");
            Connection connection = connect(options);
            Session session = autoAcknowledge(connection);
            Topic topic = session.createTopic(unique("sharedDurable"));
            session.createSharedDurableConsumer(topic, name).close();
            send(session, topic, "a");
            connection.close();
            Session again = autoAcknowledge(connect(options));
            MessageConsumer one = again.createSharedDurableConsumer(topic, name);
            MessageConsumer two = again.createSharedDurableConsumer(topic, name);
            Message message = one.receive(SILENCE_MS);
            assertEquals("a", text(message == null ? receive(two) : message));
            one.close();
            two.close();
            again.unsubscribe(name);
            send(again, topic, "b");
            assertSilent(again.createSharedDurableConsumer(topic, name));
        }
    }

    @Test
    void aSubscriptionThatDoesNotExistCannotBeEnded() throws Exception {
        Session session = autoAcknowledge(durable(unique("client")));
        assertThrows(JMSException.class, () -> session.unsubscribe("nothing"));
    }

    @Test
    void aTemporaryTopicReachesItsOwner() throws Exception {
        Session session = autoAcknowledge(connect());
        TemporaryTopic topic = session.createTemporaryTopic();
        MessageConsumer consumer = session.createConsumer(topic);
        send(autoAcknowledge(connect()), topic, "a");
        assertEquals(List.of("a"), texts(consumer, 1));
    }
}

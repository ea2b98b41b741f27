package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;

import org.apache.activemq.network.NetworkConnector;
import org.junit.jupiter.api.Test;

/** Classic opens the connection, and messages go both ways over it. */
class DuplexTest extends NetworkTest {
    @Test
    void messagesFollowConsumersBothWays() throws Exception {
        Queue in = atPostroad.createQueue("in");
        Queue out = atPostroad.createQueue("out");
        bridge(true);
        MessageConsumer consumerHere = atPostroad.createConsumer(in);
        MessageConsumer consumerThere = atClassic.createConsumer(out);
        send(atClassic, in, 0, 200);
        send(atPostroad, out, 0, 200);
        expect(consumerHere, 0, 200);
        TextMessage last = expect(consumerThere, 0, 200);
        assertNotNull(last.getStringProperty("JMSActiveMQBrokerPath"));
        expectNothing(consumerHere);
        expectNothing(consumerThere);
    }

    @Test
    void demandThatGoesTakesNothingWithIt() throws Exception {
        Queue out = atPostroad.createQueue("out");
        bridge(true);
        MessageConsumer first = atClassic.createConsumer(out);
        send(atPostroad, out, 0, 10);
        expect(first, 0, 10);
        first.close();
        Thread.sleep(1500);
        send(atPostroad, out, 10, 20);
        Thread.sleep(300);
        assertEquals(0, classic.waiting("out"), "nothing is forwarded without demand");
        MessageConsumer local = atPostroad.createConsumer(out);
        expect(local, 10, 20);
        local.close();
        send(atPostroad, out, 20, 30);
        expect(atClassic.createConsumer(out), 20, 30);
    }

    @Test
    void topicsReachSubscribersOnce() throws Exception {
        Topic news = atPostroad.createTopic("news.today");
        bridge(true);
        MessageConsumer first = atClassic.createConsumer(news);
        MessageConsumer pattern = atClassic.createConsumer(atClassic.createTopic("news.>"), "number >= 0");
        MessageConsumer here = atPostroad.createConsumer(news);
        Thread.sleep(1000);
        send(atPostroad, news, 0, 20);
        expect(here, 0, 20);
        for (MessageConsumer consumer : new MessageConsumer[] {first, pattern}) {
            for (int number = 0; number < 20; number++) {
                assertNotNull(consumer.receive(PATIENCE_MS), "message " + number);
            }
        }
        expectNothing(here);
    }

    @Test
    void selectorsCrossTheLink() throws Exception {
        Queue out = atPostroad.createQueue("out");
        bridge(true);
        MessageConsumer even = atClassic.createConsumer(out, "number >= 5");
        send(atPostroad, out, 0, 10);
        expect(even, 5, 10);
        expectNothing(even);
        assertEquals(0, classic.waiting("out"));
        expect(atPostroad.createConsumer(out), 0, 5);
    }

    @Test
    void aRequestIsAnsweredOverTheLink() throws Exception {
        Queue service = atPostroad.createQueue("service");
        bridge(true);
        MessageConsumer server = atPostroad.createConsumer(service);
        TemporaryQueue replies = atClassic.createTemporaryQueue();
        MessageConsumer client = atClassic.createConsumer(replies);
        TextMessage request = atClassic.createTextMessage("request");
        request.setJMSReplyTo(replies);
        MessageProducer requests = atClassic.createProducer(service);
        requests.send(request);
        Message taken = server.receive(PATIENCE_MS);
        assertNotNull(taken, "the request");
        MessageProducer answers = atPostroad.createProducer(taken.getJMSReplyTo());
        answers.send(atPostroad.createTextMessage("reply"));
        TextMessage reply = (TextMessage) client.receive(PATIENCE_MS);
        assertNotNull(reply, "the reply");
        assertEquals("reply", reply.getText());
    }

    @Test
    void whatIsInFlightIsNeitherLostNorKeptWhenTheLinkEnds() throws Exception {
        Queue out = atPostroad.createQueue("out");
        NetworkConnector connector = bridge(true);
        MessageConsumer consumer = atClassic.createConsumer(out);
        send(atPostroad, out, 0, 50);
        expect(consumer, 0, 50);
        connector.stop();
        send(atPostroad, out, 50, 100);
        expectNothing(consumer);
        connector.start();
        expect(consumer, 50, 100);
        expectNothing(consumer);
    }

    @Test
    void aRestartedPostroadIsFoundAgain() throws Exception {
        Queue out = atPostroad.createQueue("out");
        bridge(true);
        MessageConsumer consumer = atClassic.createConsumer(out);
        send(atPostroad, out, 0, 10);
        expect(consumer, 0, 10);
        here.close();
        postroad.kill();
        postroad.start();
        here = connect(postroad.url());
        atPostroad = here.createSession(false, Session.AUTO_ACKNOWLEDGE);
        send(atPostroad, out, 10, 20);
        expect(consumer, 10, 20);
    }
}

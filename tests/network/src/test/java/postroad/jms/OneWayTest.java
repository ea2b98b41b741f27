package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;

import org.junit.jupiter.api.Test;

/** Classic opens the connection and forwards what consumers of Postroad want. */
class OneWayTest extends NetworkTest {
    @Test
    void messagesFollowAConsumerOfAQueue() throws Exception {
        Queue orders = atPostroad.createQueue("orders");
        MessageConsumer consumer = atPostroad.createConsumer(orders);
        bridge(false);
        send(atClassic, orders, 0, 100);
        TextMessage last = expect(consumer, 0, 100);
        assertNotNull(last.getStringProperty("JMSActiveMQBrokerPath"));
        expectNothing(consumer);
        eventually("Classic has none left", () -> classic.waiting("orders") == 0);
    }

    @Test
    void withoutAConsumerNothingMoves() throws Exception {
        Queue orders = atPostroad.createQueue("orders");
        bridge(false);
        send(atClassic, orders, 0, 10);
        Thread.sleep(300);
        assertEquals(10, classic.waiting("orders"));
        MessageConsumer late = atPostroad.createConsumer(orders);
        expect(late, 0, 10);
        late.close();
        eventually("the demand goes with its consumer", () -> classic.consumers(orders) == 0);
        send(atClassic, orders, 10, 20);
        Thread.sleep(300);
        assertEquals(10, classic.waiting("orders"));
        expect(atPostroad.createConsumer(orders), 10, 20);
    }

    @Test
    void topicsReachSubscribers() throws Exception {
        Topic news = atPostroad.createTopic("news");
        MessageConsumer first = atPostroad.createConsumer(news);
        MessageConsumer second = atPostroad.createConsumer(news);
        bridge(false);
        eventually("Classic knows the demand", () -> classic.consumers(news) == 1);
        send(atClassic, news, 0, 20);
        expect(first, 0, 20);
        expect(second, 0, 20);
        expectNothing(first);
    }

    @Test
    void whatComesFromAfarHasAPathThatSelectorsSee() throws Exception {
        Queue orders = atPostroad.createQueue("orders");
        MessageConsumer local = atPostroad.createConsumer(orders, "JMSActiveMQBrokerPath IS NULL");
        MessageConsumer remote = atPostroad.createConsumer(orders, "JMSActiveMQBrokerPath IS NOT NULL");
        bridge(false);
        send(atClassic, orders, 0, 5);
        send(atPostroad, orders, 5, 10);
        expect(remote, 0, 5);
        expect(local, 5, 10);
    }
}

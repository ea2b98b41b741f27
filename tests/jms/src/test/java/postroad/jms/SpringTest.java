package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageListener;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.activemq.command.ActiveMQQueue;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.messaginghub.pooled.jms.JmsPoolConnectionFactory;
import org.springframework.jms.connection.CachingConnectionFactory;
import org.springframework.jms.core.JmsTemplate;
import org.springframework.jms.listener.DefaultMessageListenerContainer;

/** Spring's JmsTemplate and listener containers, over plain, caching and pooled connection factories. */
@DisplayName("Spring: templates, listener containers, pools")
class SpringTest extends JmsTest {
    private final java.util.ArrayDeque<Step> cleanUp = new java.util.ArrayDeque<>();

    @AfterEach
    void cleanUp() throws Exception {
        while (!cleanUp.isEmpty()) {
            cleanUp.pop().run();
        }
    }

    private ConnectionFactory connectionFactory(String kind, String... options) {
        switch (kind) {
            case "pooled" -> {
                JmsPoolConnectionFactory pool = new JmsPoolConnectionFactory();
                pool.setConnectionFactory(factory(options));
                pool.setMaxConnections(3);
                cleanUp.push(pool::stop);
                return pool;
            }
            case "caching" -> {
                CachingConnectionFactory caching = new CachingConnectionFactory(factory(options));
                caching.setSessionCacheSize(5);
                cleanUp.push(caching::destroy);
                return caching;
            }
            default -> {
                return factory(options);
            }
        }
    }

    private DefaultMessageListenerContainer listen(ConnectionFactory connections, ActiveMQQueue queue,
            MessageListener listener) {
        DefaultMessageListenerContainer container = new DefaultMessageListenerContainer();
        container.setConnectionFactory(connections);
        container.setDestination(queue);
        container.setSessionTransacted(true);
        container.setConcurrency("1-5");
        container.setReceiveTimeout(200);
        container.setMessageListener(listener);
        container.afterPropertiesSet();
        container.start();
        cleanUp.push(container::destroy);
        return container;
    }

    @ParameterizedTest(name = "{0}")
    @ValueSource(strings = {"plain", "caching", "pooled"})
    @DisplayName("JmsTemplate sends, receives and selects")
    void template(String kind) throws Exception {
        JmsTemplate template = new JmsTemplate(connectionFactory(kind, "jms.prefetchPolicy.all=1"));
        template.setReceiveTimeout(PATIENCE_MS);
        ActiveMQQueue queue = queue("template");
        for (String text : numbered("m", 20)) {
            template.convertAndSend(queue, text, message -> {
                message.setStringProperty("text", text);
                return message;
            });
        }
        assertEquals("m7", template.receiveSelectedAndConvert(queue, "text = 'm7'"));
        Set<Object> rest = new TreeSet<>();
        for (int message = 0; message < 19; message++) {
            rest.add(template.receiveAndConvert(queue));
        }
        Set<String> want = new TreeSet<>(List.of(numbered("m", 20)));
        want.remove("m7");
        assertEquals(want, rest);
        template.setReceiveTimeout(SILENCE_MS);
        assertEquals(null, template.receive(queue));
    }

    @ParameterizedTest(name = "{0}")
    @ValueSource(strings = {"plain", "pooled"})
    @DisplayName("JmsTemplate.sendAndReceive is answered by a listener container")
    void requestAndReply(String kind) throws Exception {
        ActiveMQQueue queue = queue("request");
        JmsTemplate replies = new JmsTemplate(connectionFactory("pooled"));
        listen(connectionFactory("caching"), queue, message -> {
            try {
                String answer = text(message) + "!";
                replies.send(message.getJMSReplyTo(), session -> session.createTextMessage(answer));
            } catch (JMSException failed) {
                throw new IllegalStateException(failed);
            }
        });
        JmsTemplate template = new JmsTemplate(connectionFactory(kind));
        template.setReceiveTimeout(PATIENCE_MS);
        for (String text : numbered("m", 10)) {
            Message reply = template.sendAndReceive(queue, session -> session.createTextMessage(text));
            assertNotNull(reply, text);
            assertEquals(text + "!", text(reply));
        }
    }

    @ParameterizedTest(name = "{0}")
    @ValueSource(strings = {"plain", "caching", "pooled"})
    @DisplayName("a transacted container with 1 to 5 consumers handles every message once")
    void container(String kind) throws Exception {
        int count = 200;
        ActiveMQQueue queue = queue("container");
        Set<String> handled = ConcurrentHashMap.newKeySet();
        List<String> twice = new java.util.concurrent.CopyOnWriteArrayList<>();
        CountDownLatch all = new CountDownLatch(count);
        DefaultMessageListenerContainer container = listen(
                connectionFactory(kind, "jms.prefetchPolicy.all=10"), queue, message -> {
                    try {
                        if (!handled.add(text(message))) {
                            twice.add(text(message));
                        }
                        all.countDown();
                    } catch (JMSException unreadable) {
                        throw new IllegalStateException(unreadable);
                    }
                });
        send(autoAcknowledge(connect()), queue, numbered("m", count));
        assertTrue(all.await(PATIENCE_MS * 2, TimeUnit.MILLISECONDS), () -> all.getCount() + " missing");
        container.shutdown();
        assertEquals(Set.of(numbered("m", count)), handled);
        assertEquals(List.of(), twice);
        assertEmpty(queue);
    }

    @ParameterizedTest(name = "{0}")
    @ValueSource(strings = {"plain", "pooled"})
    @DisplayName("an exception in the listener redelivers, and in the end the message goes to ActiveMQ.DLQ")
    void listenerThatThrows(String kind) throws Exception {
        ActiveMQQueue queue = queue("throws");
        LinkedBlockingQueue<String> tries = new LinkedBlockingQueue<>();
        CountDownLatch good = new CountDownLatch(1);
        DefaultMessageListenerContainer container = new DefaultMessageListenerContainer();
        container.setConnectionFactory(connectionFactory(kind, "jms.redeliveryPolicy.maximumRedeliveries=3",
                "jms.redeliveryPolicy.initialRedeliveryDelay=0", "jms.redeliveryPolicy.redeliveryDelay=0"));
        container.setDestination(queue);
        container.setSessionTransacted(true);
        // One long-lived consumer: the client counts redeliveries for each consumer.
        container.setCacheLevel(DefaultMessageListenerContainer.CACHE_CONSUMER);
        container.setReceiveTimeout(200);
        container.setErrorHandler(expected -> { });
        container.setMessageListener((MessageListener) message -> {
            try {
                if (text(message).equals("good")) {
                    good.countDown();
                    return;
                }
                tries.add(delivery(message));
            } catch (JMSException unreadable) {
                tries.add(unreadable.toString());
            }
            throw new IllegalArgumentException("poison");
        });
        container.afterPropertiesSet();
        container.start();
        cleanUp.push(container::destroy);

        JmsTemplate template = new JmsTemplate(connectionFactory("pooled"));
        template.convertAndSend(queue, "poison", message -> {
            message.setStringProperty("test", queue.getQueueName());
            return message;
        });
        for (String want : List.of("poison 1", "poison 2*", "poison 3*", "poison 4*")) {
            assertEquals(want, tries.poll(PATIENCE_MS, TimeUnit.MILLISECONDS));
        }
        MessageConsumer dead = autoAcknowledge(connect()).createConsumer(new ActiveMQQueue("ActiveMQ.DLQ"),
                "test = '" + queue.getQueueName() + "'");
        assertEquals("poison", text(receive(dead)));
        template.convertAndSend(queue, "good");
        assertTrue(good.await(PATIENCE_MS, TimeUnit.MILLISECONDS), "the queue goes on after the poison");
        container.shutdown();
        assertEmpty(queue);
        assertEquals(0, tries.size(), tries::toString);
    }

    @Test
    @DisplayName("one exception, then success: the message is handled by its second delivery")
    void oneFailure() throws Exception {
        ActiveMQQueue queue = queue("once");
        LinkedBlockingQueue<String> tries = new LinkedBlockingQueue<>();
        DefaultMessageListenerContainer container = listen(connectionFactory("caching"), queue, message -> {
            try {
                tries.add(delivery(message));
                if (!message.getJMSRedelivered()) {
                    throw new IllegalArgumentException("at first");
                }
            } catch (JMSException unreadable) {
                tries.add(unreadable.toString());
            }
        });
        container.setErrorHandler(expected -> { });
        new JmsTemplate(connectionFactory("pooled")).convertAndSend(queue, "m");
        assertEquals("m 1", tries.poll(PATIENCE_MS, TimeUnit.MILLISECONDS));
        String second = tries.poll(PATIENCE_MS, TimeUnit.MILLISECONDS);
        assertTrue(second != null && second.endsWith("*"), () -> "second delivery: " + second);
        container.shutdown();
        assertEmpty(queue);
    }

    @Test
    @DisplayName("a transacted template's send is undone by an exception of its callback")
    void transactedTemplate() throws Exception {
        ActiveMQQueue queue = queue("transacted");
        JmsTemplate template = new JmsTemplate(connectionFactory("pooled"));
        template.setSessionTransacted(true);
        try {
            template.execute(session -> {
                send(session, queue, "undone");
                throw new IllegalArgumentException("after the send");
            });
        } catch (IllegalArgumentException expected) {
            template.convertAndSend(queue, "done");
        }
        MessageConsumer consumer = autoAcknowledge(connect()).createConsumer(queue);
        assertEquals("done", text(receive(consumer)));
        assertSilent(consumer);
    }
}

package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.InvalidSelectorException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import javax.xml.parsers.DocumentBuilder;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;
import org.apache.activemq.filter.XPathExpression;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Selectors over XML in the body, which ActiveMQ adds to those of JMS. */
@DisplayName("ActiveMQ: XPATH in selectors")
class XPathTest extends JmsTest {
    /**
     * The client parses selectors too, and needs an evaluator for that, which only the jar of ActiveMQ's broker holds.
     * It never asks it anything: messages are selected by the broker.
     */
    public static final class Unused implements XPathExpression.XPathEvaluator {
        public Unused(String path, DocumentBuilder builder) {
            // Whether it is a path is the broker's to say.
        }

        @Override
        public boolean evaluate(org.apache.activemq.command.Message message) {
            throw new IllegalStateException("the client selects by itself");
        }
    }

    static {
        System.setProperty("org.apache.activemq.XPathEvaluatorClassName", Unused.class.getName());
    }

    private static final String[] BODIES = {
        "<order id='7'><item>tea</item><item>milk</item></order>",
        "<order id='8'><item>coffee</item></order>",
        "<o:order xmlns:o='urn:o'><o:item>tea</o:item></o:order>",
        "tea, milk",
        "<!DOCTYPE order [<!ENTITY item 'tea'>]><order><item>&item;</item></order>"};

    @ParameterizedTest(name = "{0} selects {1}")
    @CsvSource(delimiter = ';', quoteCharacter = '"', value = {
        "XPATH '//item'; 0 1", "XPATH '//item = ''tea'''; 0", "XPATH '/order[@id=8]'; 1", "xpath 'count(//item) > 1'; 0",
        "XPATH '//*[local-name()=''item'']'; 0 1 2", "XPATH '//missing'; ", "XPATH '//item' AND n > 0; 1",
        "NOT XPATH '//item'; 2 3 4", "XPATH '//item' OR n = 3; 0 1 3"})
    @PostroadOnly("ActiveMQ 6.3.1 delivers nothing of what these paths select")
    @DisplayName("a path over the body of text and bytes messages, deflated or not")
    void paths(String selector, String want) throws Exception {
        for (boolean deflated : new boolean[] {false, true}) {
            paths(selector, want, connect("jms.useCompression=" + deflated));
        }
    }

    private void paths(String selector, String want, Connection connection) throws Exception {
        Session session = autoAcknowledge(connection);
        ActiveMQQueue queue = queue("xpath");
        ActiveMQTopic topic = topic("xpath");
        MessageConsumer subscriber = session.createConsumer(topic, selector);
        for (int number = 0; number < BODIES.length; number++) {
            session.createProducer(queue).send(numbered(session.createTextMessage(BODIES[number]), number));
            BytesMessage bytes = session.createBytesMessage();
            bytes.writeBytes(BODIES[number].getBytes(StandardCharsets.UTF_8));
            session.createProducer(topic).send(numbered(bytes, number));
        }
        List<Integer> numbers = new ArrayList<>();
        if (want != null) {
            for (String number : want.trim().split(" ")) {
                numbers.add(Integer.valueOf(number));
            }
        }
        assertEquals(numbers, received(session.createConsumer(queue, selector), numbers.size()), "queue, text");
        assertEquals(numbers, received(subscriber, numbers.size()), "topic, bytes");
    }

    @Test
    @PostroadOnly("ActiveMQ ends the connection without an answer")
    @DisplayName("what is no path is an InvalidSelectorException")
    void noPath() throws Exception {
        Session session = autoAcknowledge(connect());
        ActiveMQQueue queue = queue("xpath");
        assertThrows(InvalidSelectorException.class, () -> session.createConsumer(queue, "XPATH '//item['"));
        send(session, queue, "the connection goes on");
        assertEquals("the connection goes on", text(receive(session.createConsumer(queue))));
    }

    private static Message numbered(Message message, int number) throws Exception {
        message.setIntProperty("n", number);
        return message;
    }

    private static List<Integer> received(MessageConsumer consumer, int count) throws Exception {
        List<Integer> numbers = new ArrayList<>();
        for (int index = 0; index < count; index++) {
            numbers.add(receive(consumer).getIntProperty("n"));
        }
        assertSilent(consumer);
        return numbers;
    }
}

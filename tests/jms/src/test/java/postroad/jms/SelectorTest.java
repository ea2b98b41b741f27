package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.InvalidSelectorException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import org.apache.activemq.command.ActiveMQQueue;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** What of selectors can be seen with ActiveMQ's client, which reads them itself before it sends them. */
@DisplayName("Selectors")
class SelectorTest extends JmsTest {
    @Test
    @DisplayName("a hyphen is a minus, and no part of the name of a property")
    void hyphen() throws Exception {
        ActiveMQQueue queue = queue("hyphen");
        Session session = autoAcknowledge(connect());
        Message difference = session.createTextMessage("difference");
        difference.setIntProperty("my", 5);
        difference.setIntProperty("prop", 3);
        Message named = session.createTextMessage("named");
        named.setIntProperty("my-prop", 2);
        for (Message message : new Message[] {difference, named}) {
            session.createProducer(queue).send(message);
        }
        MessageConsumer minus = session.createConsumer(queue, "my-prop = 2");
        assertEquals("difference", text(receive(minus)));
        assertSilent(minus);
        minus.close();
        assertEquals("named", text(receive(session.createConsumer(queue))));
    }

    @Test
    @PostroadOnly("ActiveMQ sets no limit to nesting")
    @DisplayName("a selector that the broker alone refuses is an InvalidSelectorException that says where")
    void position() throws Exception {
        Session session = autoAcknowledge(connect());
        String deep = "a = 1 AND " + "(".repeat(101) + "b = 2" + ")".repeat(101);
        InvalidSelectorException refused =
                assertThrows(InvalidSelectorException.class, () -> session.createConsumer(queue("deep"), deep));
        assertTrue(refused.getMessage().contains("at character 11"), refused.getMessage());
        assertTrue(refused.getMessage().contains("deeper than 100 levels"), refused.getMessage());
    }
}

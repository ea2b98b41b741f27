import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.activemq.ActiveMQConnectionFactory;

/** The unmodified ActiveMQ client: sends files as messages. Arguments: URL QUEUE (text|bytes) FILE... */
public class JmsSend {
    public static void main(String[] arguments) throws Exception {
        try (Connection connection = new ActiveMQConnectionFactory(arguments[0]).createConnection()) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createQueue(arguments[1]));
            for (int i = 3; i < arguments.length; i++) {
                byte[] content = Files.readAllBytes(Path.of(arguments[i]));
                producer.send(arguments[2].equals("text") ? text(session, content) : bytes(session, content));
            }
        }
    }

    private static Message text(Session session, byte[] content) throws Exception {
        return session.createTextMessage(new String(content, StandardCharsets.UTF_8));
    }

    private static Message bytes(Session session, byte[] content) throws Exception {
        var message = session.createBytesMessage();
        message.writeBytes(content);
        return message;
    }
}

package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;

import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.List;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Users and permissions of an activemq.xml, imported: the same clients are refused the same. */
@NeedsOwnBroker
@DisplayName("Permissions of an activemq.xml")
class ImportedPermissionsTest extends JmsTest {
    private static final String XML = """
            <beans><broker xmlns="http://activemq.apache.org/schema/core" brokerName="guarded"><plugins>
              <simpleAuthenticationPlugin><users>
                <authenticationUser username="system" password="s" groups="users,admins"/>
                <authenticationUser username="user" password="u" groups="users"/>
                <authenticationUser username="guest" password="g" groups="guests"/>
              </users></simpleAuthenticationPlugin>
              <authorizationPlugin><map><authorizationMap>
                <authorizationEntries>
                  <authorizationEntry queue=">" read="admins" write="admins" admin="admins"/>
                  <authorizationEntry queue="USERS.>" read="users" write="users" admin="users"/>
                  <authorizationEntry queue="GUEST.*" read="guests" write="guests,users" admin="guests,users"/>
                  <authorizationEntry topic=">" read="admins" write="admins" admin="admins"/>
                  <authorizationEntry topic="NEWS.>" read="*" write="admins" admin="admins"/>
                  <authorizationEntry topic="ActiveMQ.Advisory.>" read="guests,users" write="guests,users" admin="guests,users"/>
                </authorizationEntries>
                <tempDestinationAuthorizationEntry>
                  <tempDestinationAuthorizationEntry read="users" write="users" admin="users"/>
                </tempDestinationAuthorizationEntry>
              </authorizationMap></map></authorizationPlugin>
            </plugins></broker></beans>
            """;

    private static Broker broker;

    @BeforeAll
    static void launch() throws Exception {
        String users = Broker.usersConfiguration("system", "s", "user", "u", "guest", "g").lines().filter(line -> line.startsWith("users")).findFirst().orElseThrow();
        broker = Broker.launch("imported", Broker.imported(XML).replaceFirst("(?m)^users = .*$", users));
    }

    @AfterAll
    static void close() throws Exception {
        broker.close();
    }

    /** The actions of the user on the destination that are not refused. */
    private List<String> permitted(String user, Destination destination) throws Exception {
        ActiveMQConnectionFactory factory = factoryFor(broker.url());
        Connection connection = closing(factory.createConnection(user, user.substring(0, 1)));
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        List<String> permitted = new ArrayList<>();
        try {
            session.createConsumer(destination).close();
            permitted.add("read");
        } catch (JMSSecurityException refused) {
            // Not permitted.
        }
        try {
            session.createProducer(destination).send(session.createTextMessage("a"));
            permitted.add("write");
        } catch (JMSSecurityException refused) {
            // Not permitted.
        }
        return permitted;
    }

    @Test
    void eachUserIsRefusedTheSameAsByActiveMQ() throws Exception {
        List<String> both = List.of("read", "write");
        Object[][] cases = {
            {"system", new ActiveMQQueue("any"), both},
            {"system", new ActiveMQTopic("any"), both},
            {"system", new ActiveMQQueue("GUEST.a"), both},
            {"user", new ActiveMQQueue("any"), List.of()},
            {"user", new ActiveMQQueue("USERS.a.b"), both},
            {"user", new ActiveMQQueue("GUEST.a"), List.of("write")},
            {"user", new ActiveMQQueue("GUEST.a.b"), List.of()},
            {"user", new ActiveMQTopic("NEWS.a"), List.of("read")},
            {"guest", new ActiveMQQueue("USERS.a"), List.of()},
            {"guest", new ActiveMQQueue("GUEST.a"), both},
            {"guest", new ActiveMQTopic("NEWS.a"), List.of("read")},
            {"guest", new ActiveMQTopic("any"), List.of()},
        };
        for (Object[] one : cases) {
            assertEquals(one[2], permitted((String) one[0], (Destination) one[1]), one[0] + " " + one[1]);
        }
    }
}

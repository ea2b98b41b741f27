package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;

import org.apache.activemq.ActiveMQConnectionFactory;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Between swimlanes only destinations that a bridge names are forwarded: ordinary demand stays within one. */
@Tag("postroad")
class SwimlaneTest {
    private static Connection connect(String url) throws Exception {
        Connection connection = new ActiveMQConnectionFactory(url).createConnection();
        connection.start();
        return connection;
    }

    private static String swimlane(String name) {
        return "[openwire]\nswimlane = '" + name + "'\n";
    }

    private static String bridge(String url, String more) {
        return "[[bridge]]\nname = 'east'\nto = ['" + url + "']\nduplex = true\nlinks = 1\n" + more;
    }

    @Test
    void onlyNamedDestinationsAndRoutesCross() throws Exception {
        String route = "[[route]]\nname = 'across'\nfrom = 'queue://orders'\nto = [{ destination = 'queue://shared.orders' }]\n";
        try (Broker east = Broker.launch("swimlane-east", swimlane("ledger"));
                Broker west = Broker.launch("swimlane-west",
                        swimlane("payroll") + bridge(east.url(), "include = ['queue://shared.>']\n") + route);
                Connection here = connect(west.url());
                Connection there = connect(east.url())) {
            NetworkTest.eventually("the peer's swimlane is shown", () ->
                    west.command("ctl", "bridges", "--json").contains("\"swimlane\":\"ledger\"")
                            && east.command("ctl", "bridges", "--json").contains("\"swimlane\":\"payroll\""));
            Session atWest = here.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Session atEast = there.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageConsumer shared = atEast.createConsumer(atEast.createQueue("shared.orders"));
            MessageConsumer own = atEast.createConsumer(atEast.createQueue("orders"));
            MessageConsumer back = atWest.createConsumer(atWest.createQueue("shared.answers"));
            MessageConsumer news = atEast.createConsumer(atEast.createTopic("news"));
            NetworkTest.send(atWest, atWest.createQueue("orders"), 0, 10);
            NetworkTest.expect(shared, 0, 10);
            NetworkTest.send(atEast, atEast.createQueue("shared.answers"), 0, 10);
            NetworkTest.expect(back, 0, 10);
            NetworkTest.send(atWest, atWest.createTopic("news"), 0, 1);
            NetworkTest.expectNothing(news);
            NetworkTest.expectNothing(own);
        }
    }

    @Test
    void withoutNamedDestinationsNothingCrosses() throws Exception {
        try (Broker east = Broker.launch("swimlane-east", swimlane("ledger"));
                Broker west = Broker.launch("swimlane-west", swimlane("payroll") + bridge(east.url(), ""));
                Connection here = connect(west.url());
                Connection there = connect(east.url())) {
            NetworkTest.eventually("they are linked", () -> west.command("ctl", "bridges", "--json").contains("\"state\":\"linked\""));
            Session atWest = here.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Session atEast = there.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageConsumer consumer = atEast.createConsumer(atEast.createQueue("orders"));
            NetworkTest.send(atWest, atWest.createQueue("orders"), 0, 1);
            NetworkTest.expectNothing(consumer);
            // The same swimlane from now on.
            east.stop();
            east.configure(swimlane("payroll"));
            east.start();
            try (Connection again = connect(east.url())) {
                Session session = again.createSession(false, Session.AUTO_ACKNOWLEDGE);
                NetworkTest.expect(session.createConsumer(session.createQueue("orders")), 0, 1);
            }
            assertTrue(west.command("ctl", "bridges", "--json").contains("\"swimlane\":\"payroll\""));
        }
    }
}

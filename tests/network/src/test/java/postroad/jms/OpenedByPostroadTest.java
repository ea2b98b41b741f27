package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertNotNull;

import jakarta.jms.Connection;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;

import org.apache.activemq.ActiveMQConnectionFactory;
import org.junit.jupiter.api.Test;

/** Postroad opens the link: to Classic and to another Postroad. */
class OpenedByPostroadTest {
    private static String bridge(String url, String more) {
        return "[[bridge]]\nname = 'east'\nto = ['" + url + "']\n" + more;
    }

    private static Session session(Connection connection) throws Exception {
        connection.start();
        return connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    private static Connection connect(String url) throws Exception {
        return new ActiveMQConnectionFactory(url).createConnection();
    }

    /** Messages follow consumers of the peer, and if it is duplex consumers of the initiator too. */
    private static void flows(String initiator, String peer, boolean duplex) throws Exception {
        try (Connection here = connect(initiator); Connection there = connect(peer)) {
            Session atHere = session(here);
            Session atThere = session(there);
            Queue out = atHere.createQueue("out");
            MessageConsumer consumerThere = atThere.createConsumer(out);
            NetworkTest.send(atHere, out, 0, 100);
            TextMessage last = NetworkTest.expect(consumerThere, 0, 100);
            assertNotNull(last.getStringProperty("JMSActiveMQBrokerPath"));
            NetworkTest.expectNothing(consumerThere);
            Queue in = atHere.createQueue("in");
            MessageConsumer consumerHere = atHere.createConsumer(in);
            NetworkTest.send(atThere, in, 0, 100);
            if (duplex) {
                NetworkTest.expect(consumerHere, 0, 100);
            }
            NetworkTest.expectNothing(consumerHere);
        }
    }

    @Test
    void oneWayToClassic() throws Exception {
        try (Classic classic = new Classic("depot");
                Broker postroad = Broker.launch("to-classic", bridge(classic.url(), ""))) {
            flows(postroad.url(), classic.url(), false);
        }
    }

    @Test
    void aTranslatedNetworkConnectorLinksAndFilters() throws Exception {
        try (Classic classic = new Classic("depot")) {
            String xml = """
                    <broker xmlns="http://activemq.apache.org/schema/core" brokerName="site">
                      <networkConnectors>
                        <networkConnector name="to depot" uri="static:(%s)?maxReconnectDelay=1000" duplex="true" networkTTL="2">
                          <excludedDestinations><queue physicalName="private.>"/></excludedDestinations>
                        </networkConnector>
                        <networkConnector uri="multicast://default"/>
                      </networkConnectors>
                    </broker>
                    """.formatted(classic.url());
            try (Broker postroad = Broker.launch("imported", Broker.imported(xml));
                    Connection here = connect(postroad.url());
                    Connection there = connect(classic.url())) {
                flows(postroad.url(), classic.url(), true);
                Session atHere = session(here);
                Session atThere = session(there);
                Queue kept = atHere.createQueue("private.ledger");
                MessageConsumer consumer = atThere.createConsumer(kept);
                NetworkTest.send(atHere, kept, 0, 1);
                NetworkTest.expectNothing(consumer);
                NetworkTest.expect(atHere.createConsumer(kept), 0, 1);
            }
        }
    }

    @Test
    void duplexToClassic() throws Exception {
        try (Classic classic = new Classic("depot");
                Broker postroad = Broker.launch("to-classic-duplex", bridge(classic.url(), "duplex = true\n"))) {
            flows(postroad.url(), classic.url(), true);
        }
    }

    @Test
    void duplexToPostroad() throws Exception {
        try (Broker east = Broker.launch("east");
                Broker west = Broker.launch("west", bridge(east.url(), "duplex = true\n"))) {
            flows(west.url(), east.url(), true);
        }
    }

    @Test
    void aPeerThatDiesIsFoundAgainAndGetsWhatWaited() throws Exception {
        try (Broker east = Broker.launch("east");
                Broker west = Broker.launch("west", bridge(east.url(), ""));
                Connection here = connect(west.url())) {
            Session atWest = session(here);
            Queue out = atWest.createQueue("out");
            try (Connection there = connect(east.url())) {
                MessageConsumer consumer = session(there).createConsumer(out);
                NetworkTest.send(atWest, out, 0, 10);
                NetworkTest.expect(consumer, 0, 10);
            }
            // What its clients acknowledged without waiting is durable by then.
            Thread.sleep(500);
            east.kill();
            NetworkTest.send(atWest, out, 10, 20);
            east.start();
            try (Connection there = connect(east.url())) {
                NetworkTest.expect(session(there).createConsumer(out), 10, 20);
            }
        }
    }

    @Test
    void includedAndExcludedDestinationsAreKept() throws Exception {
        String lists = "include = ['queue://shop.>', 'topic://news']\nexclude = ['queue://shop.secret']\n";
        try (Broker east = Broker.launch("east");
                Broker west = Broker.launch("west", bridge(east.url(), lists));
                Connection here = connect(west.url());
                Connection there = connect(east.url())) {
            Session atWest = session(here);
            Session atEast = session(there);
            MessageConsumer shop = atEast.createConsumer(atEast.createQueue("shop.orders"));
            MessageConsumer secret = atEast.createConsumer(atEast.createQueue("shop.secret"));
            MessageConsumer other = atEast.createConsumer(atEast.createQueue("other"));
            for (String name : new String[] {"other", "shop.secret", "shop.orders"}) {
                NetworkTest.send(atWest, atWest.createQueue(name), 0, 3);
            }
            NetworkTest.expect(shop, 0, 3);
            NetworkTest.expectNothing(secret);
            NetworkTest.expectNothing(other);
        }
    }

    @Test
    void credentialsAreChecked() throws Exception {
        try (Broker east = Broker.launch("east", Broker.usersConfiguration("link", "right"));
                Broker wrong = Broker.launch("wrong", bridge(east.url(), "user = 'link'\npassword = 'left'\n"));
                Broker right = Broker.launch("right", bridge(east.url(), "user = 'link'\npassword = 'right'\n"));
                Connection fromWrong = connect(wrong.url());
                Connection fromRight = connect(right.url());
                Connection there = new ActiveMQConnectionFactory("link", "right", east.url()).createConnection()) {
            MessageConsumer consumer = session(there).createConsumer(session(there).createQueue("out"));
            Session atWrong = session(fromWrong);
            Session atRight = session(fromRight);
            NetworkTest.send(atWrong, atWrong.createQueue("out"), 100, 110);
            NetworkTest.send(atRight, atRight.createQueue("out"), 0, 10);
            NetworkTest.expect(consumer, 0, 10);
            NetworkTest.expectNothing(consumer);
            NetworkTest.eventually("the log says why", () -> wrong.log().contains("the peer refuses the link"));
        }
    }

    @Test
    void aLinkToItselfIsRefusedAndTheBrokerServesOn() throws Exception {
        try (Broker postroad = Broker.launch("itself")) {
            postroad.stop();
            postroad.configure(bridge(postroad.url(), ""));
            postroad.start();
            NetworkTest.eventually("the log says why", () -> postroad.log().contains("the link leads back"));
            try (Connection connection = connect(postroad.url())) {
                Session session = session(connection);
                Queue queue = session.createQueue("q");
                NetworkTest.send(session, queue, 0, 1);
                NetworkTest.expect(session.createConsumer(queue), 0, 1);
            }
        }
    }
}

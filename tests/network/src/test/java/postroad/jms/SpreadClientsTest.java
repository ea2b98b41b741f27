package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

import jakarta.jms.Connection;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;

import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.command.ConnectionControl;
import org.apache.activemq.transport.DefaultTransportListener;
import org.apache.activemq.transport.failover.FailoverTransport;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Unmodified {@code failover:} clients learn the brokers of the network, and some move to one with fewer clients. */
@Tag("postroad")
class SpreadClientsTest {
    private static final int CLIENTS = 8;

    /** A client that says nothing is looked at when its sign of life is due. */
    private static Connection connect(Broker broker) throws Exception {
        String url = "failover:(" + broker.url() + "?wireFormat.maxInactivityDuration=2000)?initialReconnectDelay=50&maxReconnectDelay=200&timeout=10000";
        Connection connection = new ActiveMQConnectionFactory(url).createConnection();
        connection.start();
        return connection;
    }

    private static String place(Connection connection) {
        FailoverTransport transport = ((ActiveMQConnection) connection).getTransport().narrow(FailoverTransport.class);
        String at = String.valueOf(transport.getConnectedTransportURI());
        return at.contains("?") ? at.substring(0, at.indexOf('?')) : at;
    }

    private static String configuration(String more, String to) {
        String bridge = to == null ? "" : "[[bridge]]\nname = 'peer'\nto = ['" + to + "']\nduplex = true\nretry_ms = 200\nretry_max_ms = 200\n";
        return bridge + "[openwire]\nupdate_clients = true\n" + more;
    }

    private static void awaitLinked(Broker broker) throws Exception {
        NetworkTest.eventually("linked", () -> broker.command("ctl", "bridges", "--json").contains("\"state\":\"linked\""));
    }

    /** Notes the lists of brokers that a client is told. */
    private static final class Told extends DefaultTransportListener {
        final List<String> lists = new CopyOnWriteArrayList<>();

        @Override
        public void onCommand(Object command) {
            if (command instanceof ConnectionControl control) {
                lists.add(String.valueOf(control.getConnectedBrokers()));
            }
        }
    }

    @Test
    void clientsLearnTheOtherBrokerAndGoThereWhenTheirsEnds() throws Exception {
        try (Broker east = Broker.launch("spread-east", configuration("", null));
                Broker west = Broker.launch("spread-west", configuration("", east.url()))) {
            east.stop();
            try (Connection early = connect(west)) {
                Told told = new Told();
                ((ActiveMQConnection) early).addTransportListener(told);
                east.start();
                awaitLinked(west);
                NetworkTest.eventually("a client that says nothing is told", () -> told.lists.contains(west.url() + "," + east.url()));
                try (Connection late = connect(west)) {
                    assertEquals(west.url(), place(early));
                    west.kill();
                    for (Connection each : List.of(early, late)) {
                        NetworkTest.eventually("it goes to the other broker", () -> place(each).equals(east.url()));
                    }
                    Session session = early.createSession(false, Session.AUTO_ACKNOWLEDGE);
                    MessageConsumer consumer = session.createConsumer(session.createQueue("after"));
                    NetworkTest.send(session, session.createQueue("after"), 0, 10);
                    NetworkTest.expect(consumer, 0, 10);
                }
            }
        }
    }

    /** A broker whose name the filter leaves out is on no list, and one that has gone leaves it if it shall. */
    @Test
    void listsFollowTheFilterAndTheBrokersThatGo() throws Exception {
        String filter = "update_clients_filter = ['near*']\nupdate_clients_on_remove = true\n";
        try (Broker near = Broker.launch("filter-near", "broker_name = 'near-1'\n");
                Broker far = Broker.launch("filter-far", "broker_name = 'far-1'\n");
                Broker hub = Broker.launch("filter-hub", "broker_name = 'near-0'\n" + configuration(filter, near.url())
                        + "[[bridge]]\nname = 'far'\nto = ['" + far.url() + "']\nduplex = true\nretry_ms = 200\nretry_max_ms = 200\n")) {
            near.stop();
            try (Connection client = connect(hub)) {
                Told told = new Told();
                ((ActiveMQConnection) client).addTransportListener(told);
                near.start();
                NetworkTest.eventually("a broker of the filter is on the list", () -> told.lists.contains(hub.url() + "," + near.url()));
                told.lists.clear();
                near.kill();
                NetworkTest.eventually("it has left the list", () -> told.lists.contains(hub.url()));
                NetworkTest.eventually("the other is linked", () -> hub.command("ctl", "bridges", "--json").contains("\"peer\":\"far-1\""));
                assertTrue(told.lists.stream().noneMatch(list -> list.contains(far.url())), told.lists::toString);
            }
        }
    }

    @Test
    void someClientsMoveToABrokerThatHasFewerAndNoneInATransaction() throws Exception {
        String rebalance = "rebalance_clients = true\n";
        List<Connection> clients = new ArrayList<>();
        try (Broker east = Broker.launch("balance-east", configuration(rebalance, null));
                Broker west = Broker.launch("balance-west", configuration(rebalance, east.url()))) {
            east.stop();
            try {
                for (int number = 0; number < CLIENTS; number++) {
                    clients.add(connect(west));
                }
                Connection busy = clients.get(0);
                Session transacted = busy.createSession(true, Session.SESSION_TRANSACTED);
                Queue queue = transacted.createQueue("balanced");
                NetworkTest.send(transacted, queue, 0, 1);
                east.start();
                awaitLinked(west);
                NetworkTest.eventually("some have moved, some have stayed", () -> {
                    long moved = clients.stream().filter(each -> place(each).equals(east.url())).count();
                    return moved >= CLIENTS / 4 && moved <= CLIENTS - CLIENTS / 4;
                });
                assertEquals(west.url(), place(busy), "a client in a transaction stays");
                transacted.commit();
                NetworkTest.expect(transacted.createConsumer(queue), 0, 1);
                transacted.commit();
            } finally {
                // A failover: client cannot be closed without a broker.
                for (Connection each : clients) {
                    each.close();
                }
            }
        }
    }
}

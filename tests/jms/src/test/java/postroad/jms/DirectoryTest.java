package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.JMSSecurityException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.command.ActiveMQQueue;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Users of a directory (LDAP), by OpenWire and HTTP. */
@NeedsOwnBroker
@DisplayName("Users of a directory, by OpenWire and HTTP")
class DirectoryTest extends JmsTest {
    private static final int TIMEOUT_MILLISECONDS = 2_000;

    private DirectoryServer directory;
    private Broker broker;

    @BeforeEach
    void launch() throws Exception {
        directory = new DirectoryServer();
        launch("ldaps");
    }

    private void launch(String scheme) throws Exception {
        String users = Broker.usersConfiguration("alice", "wonder");
        broker = Broker.launch("ldap", users + directory.configuration(scheme, TIMEOUT_MILLISECONDS));
    }

    @AfterEach
    void close() throws Exception {
        broker.close();
        directory.close();
    }

    private Connection connect(String user, String password) throws Exception {
        ActiveMQConnectionFactory factory = factoryFor(broker.url());
        Connection connection = closing(factory.createConnection(user, password));
        connection.start();
        return connection;
    }

    private void roundTrip(Connection connection) throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue("orders." + queue("round").getQueueName());
        send(autoAcknowledge(connection), queue, "a");
        assertEquals(List.of("a"), texts(autoAcknowledge(connection).createConsumer(queue), 1));
    }

    private int http(String path, String authorization) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(broker.httpUrl() + path)).header("Authorization", authorization).build();
        return HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).statusCode();
    }

    private int admin(String user, String password) throws Exception {
        return http("/api/v1/broker", "Basic " + Base64.getEncoder().encodeToString((user + ":" + password).getBytes()));
    }

    private CountDownLatch end(Connection connection) throws JMSException {
        CountDownLatch ended = new CountDownLatch(1);
        connection.setExceptionListener(exception -> ended.countDown());
        return ended;
    }

    @Test
    void theDirectoryChecksPasswordsAndItsGroupsHavePermissions() throws Exception {
        roundTrip(connect("ann", "secret-ann"));
        roundTrip(connect("ANN", "secret-ann"));
        roundTrip(connect("alice", "wonder"));
        assertEquals(200, admin("ann", "secret-ann"));
        assertEquals(200, http("/3/projects/p/queues", "OAuth ann:secret-ann"));
        for (String[] wrong : new String[][] {
            {"ann", "guess"}, {"ann", ""}, {"ann", null}, {"zoe", "secret-ann"}, {"*", "secret-ann"}, {"ann)(uid=*", "secret-ann"},
            {"alice", "secret-ann"}, {"", "secret-ann"}}) {
            assertThrows(JMSSecurityException.class, () -> connect(wrong[0], wrong[1]), wrong[0] + ":" + wrong[1]);
        }
        assertEquals(401, admin("bob", "guess"));
        assertEquals(401, admin("bob", ""));
        assertEquals(401, http("/3/projects/p/queues", "OAuth bob:guess"));
        Connection bob = connect("bob", "secret-bob");
        JMSException refused = assertThrows(JMSException.class, () -> roundTrip(bob));
        assertTrue(refused.getMessage().contains("ldap:bob"), refused.getMessage());
    }

    @Test
    void startTlsAndALocalDirectoryWithoutTlsWork() throws Exception {
        for (String scheme : List.of("starttls", "ldap")) {
            broker.close();
            launch(scheme);
            roundTrip(connect("ann", "secret-ann"));
            assertThrows(JMSSecurityException.class, () -> connect("ann", "guess"), scheme);
        }
    }

    @Test
    void aRemovedUserAndOneInOtherGroupsDoNotGoOn() throws Exception {
        Connection ann = connect("ann", "secret-ann");
        CountDownLatch ended = end(ann);
        roundTrip(ann);
        directory.setInGroup("ann", false);
        assertTrue(ended.await(30, TimeUnit.SECONDS), "it goes on without the group");
        Connection without = connect("ann", "secret-ann");
        assertThrows(JMSException.class, () -> roundTrip(without));
        CountDownLatch gone = end(connect("bob", "secret-bob"));
        directory.remove("bob");
        assertTrue(gone.await(30, TimeUnit.SECONDS), "it goes on without the user");
        assertThrows(JMSSecurityException.class, () -> connect("bob", "secret-bob"));
    }

    @Test
    void connectedUsersAreLookedForOverOneConnection() throws Exception {
        directory.add("cleo");
        for (String user : List.of("ann", "bob", "cleo")) {
            connect(user, "secret-" + user);
        }
        int binds = directory.binds.get();
        int searches = directory.searches.get();
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        // A round asks for each user and its groups; with the end of one that is under way.
        while (directory.searches.get() < searches + 12 && System.nanoTime() < until) {
            Thread.sleep(100);
        }
        assertTrue(directory.searches.get() >= searches + 12, "users are not looked for again");
        int logins = directory.binds.get() - binds;
        assertTrue(1 <= logins && logins <= 3, logins + " logins in two rounds of three users");
    }

    @Test
    void aDirectoryThatIsDownOrHangsHoldsUpItsOwnUsersAlone() throws Exception {
        Connection before = connect("ann", "secret-ann");
        directory.slowDown(60_000);
        try (Clients clients = new Clients()) {
            for (int number = 0; number < 40; number++) {
                clients.run(() -> assertThrows(JMSSecurityException.class, () -> connect("bob", "secret-bob")));
            }
            for (int number = 0; number < 5; number++) {
                long began = System.nanoTime();
                roundTrip(connect("alice", "wonder"));
                long milliseconds = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began);
                assertTrue(milliseconds < TIMEOUT_MILLISECONDS * 4, "a user of the file waited for " + milliseconds + " ms");
            }
            roundTrip(before);
            clients.join(60);
        }
        assertEquals(503, admin("bob", "secret-bob"));
        directory.slowDown(0);
        directory.shut();
        long began = System.nanoTime();
        assertEquals(503, admin("bob", "secret-bob"));
        assertTrue(System.nanoTime() - began < 5_000_000_000L, "nothing answers at once");
        roundTrip(connect("alice", "wonder"));
        roundTrip(before);
        assertTrue(broker.command("ctl", "connections").contains("ldap:ann"));
        directory.open();
        Thread.sleep(6_000);
        roundTrip(before);
        assertEquals(200, admin("bob", "secret-bob"), "failures of the directory lock no user");
        roundTrip(connect("ann", "secret-ann"));
    }
}

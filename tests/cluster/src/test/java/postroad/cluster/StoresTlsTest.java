package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.activemq.ActiveMQSslConnectionFactory;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Clients with TLS, or inside of WebSockets, of a node whose store is led elsewhere. */
@Timeout(150)
@DisplayName("stores with TLS: it ends where the client comes in, and nodes have their own")
class StoresTlsTest {
    /** A client with a certificate in place of a password. */
    private static final String CLIENT = "client-of-south";

    private final TlsTest certificates = new TlsTest();
    private final TreeMap<String, int[]> ports = new TreeMap<>();

    StoresTlsTest() throws IOException { }

    private static int free() throws IOException {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    private String configuration(String name, Path users) {
        String pem = certificates.directory.resolve(name + ".pem").toString();
        String key = certificates.directory.resolve(name + "-key.pem").toString();
        String all = StoresTest.configuration(users).replace("[cluster]\n", certificates.configuration(name));
        String clients = certificates.directory.resolve(CLIENT + ".pem").toString();
        return all + "[tls]\ncertificate = '" + pem + "'\nkey = '" + key + "'\nclients = 'optional'\nclient_authorities = '" + clients
                + "'\n[[security.certificate]]\ncommon_name = '" + CLIENT + "'\nuser = 'south.app'\n";
    }

    /** Ports for TLS, beside those that all nodes have. */
    private void addPorts(Node node) throws IOException {
        int[] own = {free(), free(), free()};
        ports.put(node.name, own);
        node.reconfigure("amqp_websocket = (\\d+)", "amqp_websocket = $1\nopenwire_tls = " + own[0] + "\namqp_tls = " + own[1]
                + "\namqp_websocket_tls = " + own[2]);
    }

    /** The node that it comes to checks its certificate, and the leader of its store is told of it. */
    private void aClientWithACertificate(Node node) throws Exception {
        String trust = certificates.directory.resolve(node.name + ".p12").toString();
        String keys = certificates.directory.resolve(CLIENT + ".p12").toString();
        ActiveMQSslConnectionFactory openWire = new ActiveMQSslConnectionFactory("ssl://127.0.0.1:" + ports.get(node.name)[0]);
        openWire.setTrustStore(trust);
        openWire.setTrustStorePassword(TlsTest.PASSWORD);
        openWire.setKeyStore(keys);
        openWire.setKeyStorePassword(TlsTest.PASSWORD);
        try (Connection connection = openWire.createConnection()) {
            connection.start();
            StoresTest.send(connection, "south.certified", List.of("by " + node.name));
            JMSException refused = assertThrows(JMSException.class, () -> StoresTest.send(connection, "north.certified", List.of("x")));
            assertTrue(refused.getMessage().contains("is in store 1 of the cluster"), refused.getMessage());
        }
        String options = "?amqp.saslMechanisms=EXTERNAL&transport.trustStoreLocation=" + trust + "&transport.trustStorePassword="
                + TlsTest.PASSWORD + "&transport.keyStoreLocation=" + keys + "&transport.keyStorePassword=" + TlsTest.PASSWORD;
        try (Connection connection = new JmsConnectionFactory("amqps://127.0.0.1:" + ports.get(node.name)[1] + options).createConnection()) {
            connection.start();
            assertEquals(List.of("by " + node.name), StoresTest.receive(connection, "south.certified", 1));
        }
    }

    @Test
    @DisplayName("ssl, amqps and amqpwss at each node, for each tenant")
    void clientsWithTls() throws Exception {
        StringBuilder authorities = new StringBuilder();
        for (String name : List.of("n1", "n2", "n3")) {
            certificates.certify(name);
            authorities.append(Files.readString(certificates.directory.resolve(name + ".pem"), StandardCharsets.US_ASCII));
        }
        Files.writeString(certificates.directory.resolve("authorities.pem"), authorities);
        certificates.certify(CLIENT);
        Path users = StoresTest.users();
        try (Cluster cluster = new Cluster("stores-tls", node -> configuration("n" + node, users), this::addPorts)) {
            cluster.leader();
            // Clients without failover end with a leadership that moves.
            cluster.await("leaders on three nodes", () -> new TreeSet<>(StoresTest.leaders(cluster.nodes.get(0)).values()).size() == 3);
            for (Node node : cluster.nodes) {
                aClientWithACertificate(node);
                // The node asks the leader inside of the nodes' TLS.
                String queues = node.ctl("queues", "--store", "2");
                assertTrue(queues.contains("south.certified"), queues);
                int[] own = ports.get(node.name);
                String trust = certificates.directory.resolve(node.name + ".p12").toString();
                for (String tenant : StoresTest.TENANTS) {
                    String user = tenant + ".app";
                    ActiveMQSslConnectionFactory openWire = new ActiveMQSslConnectionFactory("ssl://127.0.0.1:" + own[0]);
                    openWire.setTrustStore(trust);
                    openWire.setTrustStorePassword(TlsTest.PASSWORD);
                    try (Connection connection = openWire.createConnection(user, "secret of " + user)) {
                        connection.start();
                        StoresTest.send(connection, tenant + ".tls", List.of("x".repeat(200_000), "by " + node.name));
                    }
                    String options = "?transport.trustStoreLocation=" + trust + "&transport.trustStorePassword=" + TlsTest.PASSWORD;
                    for (String url : List.of("amqps://127.0.0.1:" + own[1], "amqpwss://127.0.0.1:" + own[2])) {
                        try (Connection connection = new JmsConnectionFactory(url + options).createConnection(user, "secret of " + user)) {
                            connection.start();
                            if (url.startsWith("amqps")) {
                                assertEquals(List.of("x".repeat(200_000), "by " + node.name), StoresTest.receive(connection, tenant + ".tls", 2));
                            } else {
                                StoresTest.send(connection, tenant + ".ws", List.of("one"));
                                assertEquals(List.of("one"), StoresTest.receive(connection, tenant + ".ws", 1));
                            }
                        }
                    }
                }
            }
        }
    }
}

package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.TreeSet;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** All bytes between nodes with TLS are recorded, while clients without TLS are served by way of nodes that do not lead. */
@Timeout(150)
@DisplayName("nodes with TLS: nothing of a client crosses the network between them in the clear")
class CarriedTlsTest {
    private static final HttpClient HTTP = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(2)).build();
    private static final String TEXT = "text of a message";

    private final TlsTest certificates = new TlsTest();
    /** Texts that must not be readable between nodes. */
    private final List<String> secrets = new ArrayList<>(List.of(TEXT, "postroad-session", "Authorization"));

    CarriedTlsTest() throws Exception {
        StringBuilder authorities = new StringBuilder();
        for (String name : List.of("n1", "n2", "n3")) {
            certificates.certify(name);
            authorities.append(Files.readString(certificates.directory.resolve(name + ".pem"), StandardCharsets.US_ASCII));
        }
        Files.writeString(certificates.directory.resolve("authorities.pem"), authorities);
        for (String user : List.of("root", "north.app", "south.app", "east.app")) {
            secrets.add("secret of " + user);
            secrets.add(basic(user));
        }
    }

    /** Nodes behind a proxy have begun the table already. */
    private static String belowCluster(String configuration) {
        return configuration.replace("[cluster]\n", "");
    }

    private String configuration(int node, String more) {
        return belowCluster(certificates.configuration("n" + node) + more);
    }

    private static String basic(String user) {
        return Base64.getEncoder().encodeToString((user + ":secret of " + user).getBytes(StandardCharsets.UTF_8));
    }

    private static HttpResponse<String> ask(String method, String url, String body, String... headers) throws Exception {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofSeconds(20))
                .method(method, body.isEmpty() ? BodyPublishers.noBody() : BodyPublishers.ofString(body)).header("Content-Type", "application/json");
        for (int header = 0; header < headers.length; header += 2) {
            request.header(headers[header], headers[header + 1]);
        }
        return HTTP.send(request.build(), HttpResponse.BodyHandlers.ofString());
    }

    private static void assertStatus(int want, HttpResponse<String> answer) {
        assertEquals(want, answer.statusCode(), answer.body());
    }

    /** Sends and receives by the plain ports of a node. */
    private static void exchange(Node node, String user, String prefix) throws Exception {
        ConnectionFactory amqp = new JmsConnectionFactory(node.amqpUrl() + "?amqp.saslMechanisms=PLAIN");
        for (ConnectionFactory factory : List.of(new ActiveMQConnectionFactory(node.url()), amqp)) {
            try (Connection connection = factory.createConnection(user, "secret of " + user)) {
                connection.start();
                String queue = prefix + factory.getClass().getSimpleName() + "." + node.name;
                StoresTest.send(connection, queue, List.of(TEXT));
                assertEquals(List.of(TEXT), StoresTest.receive(connection, queue, 1), queue);
            }
        }
    }

    private void assertNothingIsReadable(Cluster cluster, int clients) {
        for (String secret : secrets) {
            assertEquals(0, cluster.links.carried(secret), "connections in which this was readable: " + secret);
        }
        long sealed = cluster.links.carried("PRtlsn\r\n");
        assertTrue(clients <= sealed, "clients of other nodes that were seen: " + sealed);
    }

    @Test
    @DisplayName("one store: OpenWire, AMQP and HTTP at followers")
    void oneStore() throws Exception {
        Path users = StoresTest.users();
        String security = "[security]\nusers = \"" + users + "\"\n";
        try (Cluster cluster = Cluster.recorded("carried", node -> configuration(node, security))) {
            Node leader = cluster.settled();
            for (Node node : cluster.followers(leader)) {
                exchange(node, "root", "");
                String messages = node.httpUrl() + "/3/projects/p/queues/http-" + node.name + "/messages";
                String body = "{\"messages\":[{\"body\":\"" + TEXT + "\"}]}";
                assertStatus(201, ask("POST", messages, body, "Authorization", "OAuth root:secret of root"));
                String queues = node.httpUrl() + "/api/v1/queues";
                assertStatus(200, ask("GET", queues, "", "Authorization", "Basic " + basic("root")));
                assertStatus(401, ask("GET", queues, ""));
            }
            assertNothingIsReadable(cluster, 2 * 3);
        }
    }

    @Test
    @DisplayName("three stores: passwords, tokens and cookies over HTTP at each node, which are needed there")
    void severalStores() throws Exception {
        Path users = StoresTest.users();
        try (Cluster cluster = Cluster.recorded("carried-stores", node -> configuration(node, StoresTest.configuration(users)))) {
            cluster.leader();
            cluster.await("leaders on three nodes", () -> new TreeSet<>(StoresTest.leaders(cluster.nodes.get(0)).values()).size() == 3);
            for (Node node : cluster.nodes) {
                String printed = cluster.named(StoresTest.leaders(node).get(1)).ctl("token", "new", "north.app");
                String token = printed.lines().filter(line -> line.startsWith("prt_")).findFirst().orElseThrow(() -> new AssertionError(printed));
                secrets.add(token);
                cluster.await("the token is known at each node", () -> ask("GET", node.httpUrl() + "/3/projects/north/queues", "",
                        "Authorization", "OAuth " + token).statusCode() == 200);
                String body = "{\"user\":\"root\",\"password\":\"secret of root\"}";
                HttpResponse<String> signed = ask("POST", node.httpUrl() + "/api/v1/session", body, "X-Postroad-Console", "1");
                assertStatus(200, signed);
                String cookie = signed.headers().firstValue("Set-Cookie").orElseThrow().split(";")[0];
                secrets.add(cookie);
                for (int store = 1; store <= 3; store++) {
                    String tenant = StoresTest.TENANTS.get(store - 1);
                    String user = tenant + ".app";
                    exchange(node, user, tenant + ".");
                    String messages = node.httpUrl() + "/3/projects/" + tenant + "/queues/http/messages";
                    String posted = "{\"messages\":[{\"body\":\"" + TEXT + "\"}]}";
                    assertStatus(201, ask("POST", messages, posted, "Authorization", "OAuth " + user + ":secret of " + user));
                    String queues = node.httpUrl() + "/store/" + store + "/api/v1/queues";
                    assertStatus(200, ask("GET", queues, "", "Cookie", cookie));
                    assertStatus(200, ask("GET", queues, "", "Authorization", "Basic " + basic("root")));
                    // A node that asks is an operator; a client that it passes on is not.
                    assertStatus(401, ask("GET", queues, ""));
                    assertStatus(401, ask("GET", queues, "", "Authorization", "Basic " + basic("root").substring(4)));
                }
            }
            // At each node, for two stores: OpenWire, AMQP and a connection for HTTP.
            assertNothingIsReadable(cluster, 3 * 2 * 3);
        }
    }
}

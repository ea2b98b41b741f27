package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Users, tokens, tenants and their rules, changed at one node. */
@Timeout(150)
@DisplayName("administration: the next leader knows the users, tokens and tenants")
class DocumentsTest {
    private static final Pattern PASSWORD = Pattern.compile("\"password\":\"([^\"]+)\"");

    private final Path directory;

    DocumentsTest() throws Exception {
        directory = Files.createTempDirectory(Files.createDirectories(Path.of("target").toAbsolutePath()), "documents-");
    }

    private Path users(int node) {
        return directory.resolve("users-" + node);
    }

    /** Makes a file of users with one of them, before the cluster is there. */
    private void addUser(Path file, String name, String password) throws Exception {
        Process add = new ProcessBuilder(System.getProperty("postroad.bin", "../../target/release/postroad"),
                "user", "add", name, "--users", file.toString()).inheritIO().redirectInput(ProcessBuilder.Redirect.PIPE).start();
        try (var input = add.getOutputStream()) {
            input.write((password + "\n").getBytes(StandardCharsets.UTF_8));
        }
        assertEquals(0, add.waitFor());
    }

    /** Sends a message and receives it. */
    private static void use(Node node, String user, String password, String queue) throws JMSException {
        try (Connection connection = new ActiveMQConnectionFactory(node.url()).createConnection(user, password)) {
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Queue to = session.createQueue(queue);
            session.createProducer(to).send(session.createTextMessage(user));
            TextMessage message = (TextMessage) session.createConsumer(to).receive(Cluster.WITHIN_MS);
            assertEquals(user, message == null ? null : message.getText());
        }
    }

    private static void assertRefused(Node node, String user, String password) {
        assertThrows(JMSSecurityException.class, () -> use(node, user, password, "refused"), user);
    }

    /** Lists the queues by SQS, with curl's signature of version 4, until the answer has this status. */
    private static void awaitSqs(Node node, String key, String secret, String status) throws Exception {
        for (long end = System.currentTimeMillis() + Cluster.WITHIN_MS;;) {
            Process curl = new ProcessBuilder("curl", "--silent", "--max-time", "20", "--output", "/dev/null", "--write-out", "%{http_code}",
                    "--aws-sigv4", "aws:amz:us-east-1:sqs", "--user", key + ":" + secret, "--header", "Content-Type: application/x-amz-json-1.0",
                    "--header", "X-Amz-Target: AmazonSQS.ListQueues", "--data", "{}", node.httpUrl() + "/").start();
            String got = new String(curl.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            if (got.equals(status)) {
                return;
            }
            assertTrue(System.currentTimeMillis() < end, node.name + " answers " + got + " in place of " + status);
            Thread.sleep(100);
        }
    }

    private static boolean hasImported(Node node) {
        try {
            return node.hasLogged("imported into the cluster from the files of this node");
        } catch (java.io.IOException unread) {
            return false;
        }
    }

    private static String only(String printed) {
        assertTrue(printed.matches("\\S+"), printed);
        return printed;
    }

    @Test
    @DisplayName("after SIGKILL of the leader at which they were made, and removed ones are refused")
    void theNextLeaderKnowsThem() throws Exception {
        addUser(users(1), "root", "secret");
        for (int node = 2; node <= 3; node++) {
            Files.copy(users(1), users(node));
        }
        try (Cluster cluster = new Cluster("documents", node -> "[security]\nusers = '" + users(node) + "'\n")) {
            Node leader = cluster.leader();
            cluster.await("an import", () -> cluster.nodes.stream().anyMatch(node -> hasImported(node)));
            for (int node = 1; node <= 3; node++) {
                Files.delete(users(node));
            }
            String bobs = only(leader.ctl("user", "add", "bob", "--generate"));
            String token = only(leader.ctl("token", "new", "bob"));
            String revoked = only(leader.ctl("token", "new", "bob"));
            leader.ctl("token", "revoke", revoked.split("_")[1]);
            String[] key = leader.ctl("key", "new", "--user", "bob").split("\\s+|=");
            String deleted = leader.ctl("key", "new", "--user", "bob").split("\\s+|=")[1];
            leader.ctl("key", "delete", deleted);
            awaitSqs(leader, key[1], key[3], "200");
            String gones = only(leader.ctl("user", "add", "gone", "--generate"));
            String tenant = leader.ctl("tenant", "add", "acme", "--queues-max", "7", "--json");
            Matcher password = PASSWORD.matcher(tenant);
            assertTrue(password.find(), tenant);
            Path rules = Files.writeString(directory.resolve("acme.toml"), """
                    tenant = "acme"
                    [[route]]
                    name = "acme.audit"
                    from = "queue://acme.orders"
                    mode = "copy"
                    to = [{ destination = "queue://acme.audit" }]
                    """);
            String applied = leader.ctl("apply", rules.toString());
            assertTrue(applied.contains("acme.audit"), applied);
            use(leader, "gone", gones, "before");
            leader.ctl("user", "remove", "gone");
            use(leader, "bob", bobs, "before");

            leader.signal("KILL");
            leader.awaitEnd();
            Node next = cluster.leader(leader);
            use(next, "bob", bobs, "after");
            use(next, "bob", token, "after");
            use(next, "acme.admin", password.group(1), "acme.orders");
            use(next, "root", "secret", "after");
            assertRefused(next, "gone", gones);
            assertRefused(next, "bob", revoked);
            awaitSqs(next, key[1], key[3], "200");
            awaitSqs(next, deleted, key[3], "403");
            assertEquals(key[1] + "  bob", next.ctl("key", "list").strip());
            String shown = next.ctl("tenant", "show", "acme");
            assertTrue(Pattern.compile("queues_max .* of 7").matcher(shown).find(), shown);
            String routes = next.ctl("routes");
            assertTrue(routes.contains("acme.audit"), routes);

            next.ctl("user", "remove", "bob");
            leader.start();
            cluster.await(leader.name + " follows", leader::follows);
            cluster.await("a transfer to " + leader.name, () -> {
                next.ctl("cluster", "transfer", leader.name);
                return leader.serves();
            });
            assertRefused(leader, "bob", bobs);
            assertRefused(leader, "bob", token);
            use(leader, "acme.admin", password.group(1), "acme.orders");
            use(leader, "root", "secret", "again");
            String added = only(leader.ctl("user", "add", "eve", "--generate"));
            use(leader, "eve", added, "again");
        }
    }
}

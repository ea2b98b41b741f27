package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.Base64;
import java.util.List;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Nodes that show certificates to each other. */
@Timeout(150)
@DisplayName("TLS between nodes")
class TlsTest {
    static final String PASSWORD = "changeit";

    final Path directory;

    TlsTest() throws IOException {
        directory = Files.createTempDirectory(Files.createDirectories(Path.of("target").toAbsolutePath()), "certificates-");
    }

    /** A key and a certificate that it has signed itself, in PEM form. */
    void certify(String name) throws Exception {
        Path store = directory.resolve(name + ".p12");
        Process keytool = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "keytool").toString(), "-genkeypair",
                "-keystore", store.toString(), "-storetype", "PKCS12", "-storepass", PASSWORD, "-alias", name,
                "-keyalg", "EC", "-validity", "2", "-dname", "CN=" + name, "-ext", "SAN=ip:127.0.0.1").inheritIO().start();
        assertEquals(0, keytool.waitFor(), "keytool");
        KeyStore keys = KeyStore.getInstance(store.toFile(), PASSWORD.toCharArray());
        write(name + ".pem", "CERTIFICATE", keys.getCertificate(name).getEncoded());
        write(name + "-key.pem", "PRIVATE KEY", keys.getKey(name, PASSWORD.toCharArray()).getEncoded());
    }

    private void write(String file, String kind, byte[] der) throws IOException {
        String body = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(der);
        Files.writeString(directory.resolve(file), "-----BEGIN " + kind + "-----\n" + body + "\n-----END " + kind + "-----\n");
    }

    String configuration(String name) {
        return "[cluster]\ntls_certificate = '%s'\ntls_key = '%s'\ntls_authorities = '%s'\n".formatted(directory.resolve(name + ".pem"),
                directory.resolve(name + "-key.pem"), directory.resolve("authorities.pem"));
    }

    @Test
    @DisplayName("nodes of one authority replicate, and one with a foreign certificate is refused and named")
    void aForeignCertificateIsRefused() throws Exception {
        StringBuilder authorities = new StringBuilder();
        for (String name : List.of("n1", "n2", "n3", "stranger")) {
            certify(name);
            if (!name.equals("stranger")) {
                authorities.append(Files.readString(directory.resolve(name + ".pem"), StandardCharsets.US_ASCII));
            }
        }
        Files.writeString(directory.resolve("authorities.pem"), authorities);
        try (Cluster cluster = new Cluster("tls", node -> configuration("n" + node))) {
            Node leader = cluster.leader();
            Node stranger = cluster.followers(leader).get(0);
            try (Connection connection = new ActiveMQConnectionFactory(leader.url()).createConnection()) {
                connection.start();
                Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                Queue queue = session.createQueue("tls");
                session.createProducer(queue).send(session.createTextMessage("replicated"));
                TextMessage message = (TextMessage) session.createConsumer(queue).receive(Cluster.WITHIN_MS);
                assertEquals("replicated", message == null ? null : message.getText());
            }
            stranger.signal("KILL");
            stranger.awaitEnd();
            stranger.configure(configuration("stranger"));
            stranger.start();
            cluster.await("the leader names the foreign certificate",
                    () -> leader.hasLogged("the certificate CN=stranger is refused"));
            assertFalse(stranger.follows(), stranger.readiness());
            assertTrue(leader.serves());
        }
    }
}

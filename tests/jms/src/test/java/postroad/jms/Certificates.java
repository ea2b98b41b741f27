package postroad.jms;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

/** Keys and certificates of a broker and of a client, each signed by itself, as PEM and as PKCS #12. */
final class Certificates {
    static final String PASSWORD = "changeit";

    final Path directory;

    Certificates() throws Exception {
        directory = Files.createTempDirectory(Files.createDirectories(Path.of("target").toAbsolutePath()), "certificates-");
        make("broker", "CN=localhost", "-ext", "SAN=ip:127.0.0.1,dns:localhost");
        make("client", "CN=alice,O=Orders");
        make("stranger", "CN=mallory");
    }

    /** A file such as {@code broker.pem}, {@code broker-key.pem} or {@code client.p12}. */
    String file(String name) {
        return directory.resolve(name).toString();
    }

    /** The configuration of a broker with these certificates. */
    String configuration(String clients) {
        return """
                [tls]
                certificate = '%s'
                key = '%s'
                clients = '%s'
                client_authorities = '%s'
                """.formatted(file("broker.pem"), file("broker-key.pem"), clients, file("client.pem"));
    }

    private void make(String name, String subject, String... more) throws Exception {
        Path store = directory.resolve(name + ".p12");
        List<String> command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "keytool").toString(), "-genkeypair",
                "-keystore", store.toString(), "-storetype", "PKCS12", "-storepass", PASSWORD, "-alias", name,
                "-keyalg", "RSA", "-keysize", "2048", "-validity", "2", "-dname", subject));
        command.addAll(List.of(more));
        Process keytool = new ProcessBuilder(command).redirectErrorStream(true).start();
        String said = new String(keytool.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        if (keytool.waitFor() != 0) {
            throw new IOException("keytool: " + said);
        }
        KeyStore keys = KeyStore.getInstance(store.toFile(), PASSWORD.toCharArray());
        write(name + ".pem", "CERTIFICATE", keys.getCertificate(name).getEncoded());
        write(name + "-key.pem", "PRIVATE KEY", keys.getKey(name, PASSWORD.toCharArray()).getEncoded());
        KeyStore trusted = KeyStore.getInstance("PKCS12");
        trusted.load(null, null);
        trusted.setCertificateEntry(name, keys.getCertificate(name));
        try (var out = Files.newOutputStream(directory.resolve(name + "-trust.p12"))) {
            trusted.store(out, PASSWORD.toCharArray());
        }
    }

    private void write(String file, String kind, byte[] der) throws IOException {
        String body = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(der);
        Files.writeString(directory.resolve(file), "-----BEGIN " + kind + "-----\n" + body + "\n-----END " + kind + "-----\n");
    }
}

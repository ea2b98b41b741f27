package postroad.jms;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.FileInputStream;
import java.security.KeyStore;

import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.TrustManagerFactory;

import jakarta.jms.Connection;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;

import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.broker.SslContext;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Links by TLS, to Postroad and to Classic, with certificates at both ends. */
class TlsLinkTest {
    private static Certificates certificates;

    @BeforeAll
    static void certify() throws Exception {
        certificates = new Certificates();
    }

    private static String bridge(String url, String trust, String own, String name) {
        String tls = "[bridge.tls]\ntrust = '" + certificates.file(trust + ".pem") + "'\n";
        if (own != null) {
            tls += "certificate = '" + certificates.file(own + ".pem") + "'\nkey = '" + certificates.file(own + "-key.pem") + "'\n";
        }
        String more = name == null ? "" : "name = '" + name + "'\n";
        return "[[bridge]]\nname = 'east'\nto = ['" + url + "']\nduplex = true\nretry_ms = 200\nretry_max_ms = 200\n" + tls + more;
    }

    private static Session session(Connection connection) throws Exception {
        connection.start();
        return connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    private static void flows(Connection from, Connection to, String queue) throws Exception {
        Session sending = session(from);
        Session receiving = session(to);
        MessageConsumer consumer = receiving.createConsumer(receiving.createQueue(queue));
        NetworkTest.send(sending, sending.createQueue(queue), 0, 100);
        NetworkTest.expect(consumer, 0, 100);
    }

    private static void awaitReason(Broker broker, String reason) throws Exception {
        NetworkTest.eventually("the link ends: " + reason, () -> broker.command("ctl", "bridges", "--json").contains(reason));
    }

    @Test
    void toPostroadWithACertificateOfItsOwn() throws Exception {
        try (Broker east = Broker.launch("tls-east", certificates.configuration("required"));
                Broker west = Broker.launch("tls-west", bridge(east.tlsUrl(), "broker", "client", null));
                Connection here = new ActiveMQConnectionFactory(west.url()).createConnection();
                Connection there = new ActiveMQConnectionFactory(east.url()).createConnection()) {
            flows(here, there, "out");
            flows(there, here, "in");
        }
    }

    @Test
    void aPeerThatIsNotTrustedOrHasAnotherNameIsRefused() throws Exception {
        try (Broker east = Broker.launch("tls-east", certificates.configuration("none"));
                Broker other = Broker.launch("tls-other", bridge(east.tlsUrl(), "stranger", null, null));
                Broker misnamed = Broker.launch("tls-name", bridge(east.tlsUrl(), "broker", null, "depot.example"));
                Broker named = Broker.launch("tls-named", bridge(east.tlsUrl(), "broker", null, "localhost"))) {
            awaitReason(other, "TLS: invalid peer certificate: UnknownIssuer");
            awaitReason(misnamed, "certificate not valid for name");
            awaitReason(named, "\"state\":\"linked\"");
        }
    }

    @Test
    void aBrokerWithoutACertificateIsNotLetIn() throws Exception {
        try (Broker east = Broker.launch("tls-east", certificates.configuration("required"));
                Broker west = Broker.launch("tls-west", bridge(east.tlsUrl(), "broker", null, null))) {
            awaitReason(west, "TLS: received fatal alert");
        }
    }

    @Test
    void toClassicWithACertificateOfItsOwn() throws Exception {
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(store("broker.p12"), Certificates.PASSWORD.toCharArray());
        TrustManagerFactory trusted = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trusted.init(store("client-trust.p12"));
        SslContext context = new SslContext(keys.getKeyManagers(), trusted.getTrustManagers(), null);
        try (Classic classic = new Classic("depot", context, "ssl://127.0.0.1:0?needClientAuth=true");
                Broker postroad = Broker.launch("tls-to-classic", bridge(classic.url(), "broker", "client", "localhost"));
                Connection here = new ActiveMQConnectionFactory(postroad.url()).createConnection();
                Connection there = new ActiveMQConnectionFactory("vm://depot?create=false").createConnection()) {
            assertTrue(classic.url().startsWith("ssl:"), classic.url());
            flows(here, there, "out");
            flows(there, here, "in");
        }
    }

    private static KeyStore store(String file) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (FileInputStream in = new FileInputStream(certificates.file(file))) {
            store.load(in, Certificates.PASSWORD.toCharArray());
        }
        return store;
    }
}

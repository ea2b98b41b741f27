package postroad.jms;

import com.unboundid.ldap.listener.InMemoryDirectoryServer;
import com.unboundid.ldap.listener.InMemoryDirectoryServerConfig;
import com.unboundid.ldap.listener.InMemoryListenerConfig;
import com.unboundid.ldap.listener.interceptor.InMemoryInterceptedSearchRequest;
import com.unboundid.ldap.listener.interceptor.InMemoryInterceptedSimpleBindRequest;
import com.unboundid.ldap.listener.interceptor.InMemoryOperationInterceptor;
import com.unboundid.ldap.sdk.Modification;
import com.unboundid.ldap.sdk.ModificationType;
import com.unboundid.util.ssl.KeyStoreKeyManager;
import com.unboundid.util.ssl.SSLUtil;
import com.unboundid.util.ssl.TrustAllTrustManager;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A directory with the users ann and bob, whose passwords are secret-ann and secret-bob. Ann is in the
 * group orders.
 */
final class DirectoryServer implements AutoCloseable {
    private static final String GROUP = "cn=orders,ou=groups,dc=example";

    private final InMemoryDirectoryServer server;
    private final Certificates certificates;
    private final int[] ports;
    private final Path password;
    /** Logins, and searches, so far. */
    final AtomicInteger binds = new AtomicInteger();
    final AtomicInteger searches = new AtomicInteger();

    DirectoryServer() throws Exception {
        certificates = new Certificates();
        InMemoryDirectoryServerConfig config = new InMemoryDirectoryServerConfig("dc=example");
        config.setSchema(null);
        config.addAdditionalBindCredentials("cn=broker", "secret");
        config.setAuthenticationRequiredOperationTypes(com.unboundid.ldap.sdk.OperationType.SEARCH);
        config.addInMemoryOperationInterceptor(new InMemoryOperationInterceptor() {
            @Override
            public void processSimpleBindRequest(InMemoryInterceptedSimpleBindRequest request) {
                binds.incrementAndGet();
            }

            @Override
            public void processSearchRequest(InMemoryInterceptedSearchRequest request) {
                searches.incrementAndGet();
            }
        });
        InetAddress here = InetAddress.getByName("127.0.0.1");
        SSLUtil tls = new SSLUtil(
                new KeyStoreKeyManager(certificates.file("broker.p12"), Certificates.PASSWORD.toCharArray(), "PKCS12", "broker"),
                new TrustAllTrustManager());
        config.setListenerConfigs(
                InMemoryListenerConfig.createLDAPConfig("ldap", here, 0, tls.createSSLSocketFactory()),
                InMemoryListenerConfig.createLDAPSConfig("ldaps", here, 0, tls.createSSLServerSocketFactory(), null));
        server = new InMemoryDirectoryServer(config);
        server.add("dn: dc=example", "objectClass: domain");
        server.add("dn: ou=people,dc=example", "objectClass: organizationalUnit");
        server.add("dn: ou=groups,dc=example", "objectClass: organizationalUnit");
        add("ann");
        add("bob");
        server.add("dn: " + GROUP, "objectClass: groupOfNames", "member: " + dn("ann"));
        server.startListening();
        ports = new int[] {server.getListenPort("ldap"), server.getListenPort("ldaps")};
        password = Files.createTempFile(certificates.directory, "password", "",
                PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
        Files.writeString(password, "secret\n");
    }

    private static String dn(String user) {
        return "uid=" + user + ",ou=people,dc=example";
    }

    void add(String user) throws Exception {
        server.add("dn: " + dn(user), "objectClass: inetOrgPerson", "userPassword: secret-" + user);
    }

    void remove(String user) throws Exception {
        server.delete(dn(user));
    }

    void setInGroup(String user, boolean isIn) throws Exception {
        server.modify(GROUP, new Modification(isIn ? ModificationType.ADD : ModificationType.DELETE, "member", dn(user)));
    }

    /** Each request takes this time from now on. */
    void slowDown(long milliseconds) {
        server.setProcessingDelayMillis(milliseconds);
    }

    /** The directory is gone; {@link #open} has it back. */
    void shut() {
        server.shutDown(true);
    }

    /** At the same ports. */
    void open() throws Exception {
        server.startListening();
        if (ports[0] != server.getListenPort("ldap")) {
            throw new IllegalStateException("the directory is at another port");
        }
    }

    /** The configuration of a broker; {@code scheme} is {@code ldap}, {@code ldaps} or {@code starttls}. */
    String configuration(String scheme, int timeoutMilliseconds) {
        boolean isTls = scheme.equals("ldaps");
        return """
                [security.ldap]
                urls = ["%s://127.0.0.1:%d"]
                start_tls = %s
                authorities = '%s'
                bind_dn = "cn=broker"
                bind_password_file = '%s'
                user_base = "ou=people,dc=example"
                group_base = "ou=groups,dc=example"
                timeout_ms = %d
                [[security.group]]
                name = "orders"
                [[security.permission]]
                groups = ["orders"]
                users = ["alice"]
                destinations = ["queue://orders.>"]
                actions = ["read", "write", "create"]
                """.formatted(isTls ? "ldaps" : "ldap", ports[isTls ? 1 : 0], scheme.equals("starttls"),
                certificates.file("broker.pem"), password, timeoutMilliseconds);
    }

    @Override
    public void close() {
        server.shutDown(true);
    }
}

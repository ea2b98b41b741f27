package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.io.IOException;
import java.net.ServerSocket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.MethodOrderer;
import org.junit.jupiter.api.Order;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestMethodOrder;
import org.junit.jupiter.api.Timeout;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.http.urlconnection.UrlConnectionHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.model.QueueAttributeName;
import software.amazon.awssdk.services.sqs.model.SqsException;

/** Three nodes with three stores, and a tenant in each: unmodified clients connect to any node. */
@Timeout(240)
@DisplayName("stores: each tenant is served by the leader of its store, whichever node its clients connect to")
@TestMethodOrder(MethodOrderer.OrderAnnotation.class)
class StoresTest {
    private static final int STORES = 3;
    private static final long BALANCED_WITHIN_MS = 30_000;
    private static final long SERVED_WITHIN_MS = 10_000;
    static final List<String> TENANTS = List.of("north", "south", "east");

    private static Cluster cluster;
    /** A broker that stands alone, and its port. */
    private static Process standalone;
    private static int peer;

    @BeforeAll
    static void startNodes() throws Exception {
        Path users = users();
        peer = freePort();
        Path data = users.resolveSibling("peer");
        Path file = Files.writeString(users.resolveSibling("peer.toml"), "[ports]\nopenwire = " + peer + "\nhttp = " + freePort() + "\namqp = "
                + freePort() + "\namqp_websocket = " + freePort() + "\n");
        standalone = new ProcessBuilder(Node.binary(), "serve", "--config", file.toString(), "--data", data.toString()).redirectErrorStream(true)
                .redirectOutput(users.resolveSibling("peer.log").toFile()).start();
        String link = "[[bridge]]\nname = \"far\"\nto = [\"tcp://127.0.0.1:" + peer + "\"]\ninclude = [\"queue://east.>\"]\n";
        cluster = new Cluster("stores", node -> configuration(users) + link);
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    /** A file with an operator and a user of each tenant. */
    static Path users() throws IOException {
        Path users = Files.createTempDirectory(Files.createDirectories(Path.of("target", "nodes").toAbsolutePath()), "users-").resolve("users");
        for (String user : List.of("root", "north.app", "south.app", "east.app")) {
            addUser(users, user);
        }
        return users;
    }

    @AfterAll
    static void endNodes() throws Exception {
        cluster.close();
        standalone.destroyForcibly().waitFor();
    }

    private static void addUser(Path users, String name) throws IOException {
        Process add = new ProcessBuilder(Node.binary(), "user", "add", "--users", users.toString(), name).redirectErrorStream(true).start();
        try (var input = add.getOutputStream()) {
            input.write(("secret of " + name + "\n").getBytes(StandardCharsets.UTF_8));
        }
        add.getInputStream().readAllBytes();
    }

    static String configuration(Path users) {
        StringBuilder text = new StringBuilder("[cluster]\nstores = " + STORES + "\n[security]\nusers = \"" + users + "\"\n");
        text.append("[[security.permission]]\nusers = [\"root\"]\ndestinations = [\"queue://>\", \"topic://>\"]\n"
                + "actions = [\"read\", \"write\", \"create\", \"manage\", \"admin\"]\n");
        for (int store = 1; store <= STORES; store++) {
            String tenant = TENANTS.get(store - 1);
            text.append("[[security.group]]\nname = \"tenant:" + tenant + "\"\nusers = [\"" + tenant + ".app\"]\n");
            text.append("[[tenant]]\nname = \"" + tenant + "\"\nstore = " + store + "\n");
            text.append("[[route]]\nname = \"of-" + tenant + "\"\nfrom = \"queue://" + tenant + ".in\"\nto = [{ destination = \"queue://"
                    + tenant + ".out\" }]\n");
        }
        return text.toString();
    }

    /** The leaders of the stores as this node knows them, by number. */
    static TreeMap<Integer, String> leaders(Node node) throws Exception {
        TreeMap<Integer, String> leaders = new TreeMap<>();
        String state = node.cluster("root", "secret of root");
        var rows = java.util.regex.Pattern.compile("\\{[^{}]*\"store\":(\\d+)[^{}]*\\}").matcher(state);
        while (rows.find()) {
            var leader = java.util.regex.Pattern.compile("\"leader\":\"([^\"]+)\"").matcher(rows.group());
            if (leader.find()) {
                leaders.put(Integer.parseInt(rows.group(1)), leader.group(1));
            }
        }
        return leaders;
    }

    /** Waits until each of the nodes that run leads a store, and all know the same leaders; returns after how long. */
    private static long awaitLeadersOnThreeNodes() throws Exception {
        long began = System.currentTimeMillis();
        cluster.await("leaders on three nodes", () -> {
            TreeSet<String> seen = new TreeSet<>();
            for (Node node : cluster.nodes) {
                seen.add(leaders(node).toString());
            }
            return seen.size() == 1 && new TreeSet<>(leaders(cluster.nodes.get(0)).values()).size() == STORES;
        });
        return System.currentTimeMillis() - began;
    }

    private static ConnectionFactory factory(Clients.Protocol protocol, String urls) {
        return protocol == Clients.Protocol.OPENWIRE ? new ActiveMQConnectionFactory(urls) : new JmsConnectionFactory(urls);
    }

    private static String url(Clients.Protocol protocol, Node node) {
        return protocol == Clients.Protocol.OPENWIRE ? node.url() : node.amqpUrl();
    }

    private static Connection connect(String tenant, Clients.Protocol protocol, String urls) throws JMSException {
        Connection connection = factory(protocol, urls).createConnection(tenant + ".app", "secret of " + tenant + ".app");
        connection.start();
        return connection;
    }

    static void send(Connection connection, String queue, List<String> texts) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue destination = session.createQueue(queue);
        var producer = session.createProducer(destination);
        for (String text : texts) {
            producer.send(session.createTextMessage(text));
        }
        session.close();
    }

    static List<String> receive(Connection connection, String queue, int count) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
        List<String> texts = new ArrayList<>();
        while (texts.size() < count) {
            TextMessage message = (TextMessage) consumer.receive(SERVED_WITHIN_MS);
            if (message == null) {
                break;
            }
            texts.add(message.getText());
        }
        session.close();
        return texts;
    }

    @Test
    @Order(1)
    @DisplayName("the leaders are on three nodes within 30 s")
    void leadersAreSpread() throws Exception {
        cluster.leader();
        long within = awaitLeadersOnThreeNodes();
        System.out.println("stores: leaders on three nodes after ms: " + within);
        Node node = cluster.nodes.get(0);
        String shown = node.ctl("cluster");
        for (var led : leaders(node).entrySet()) {
            assertTrue(shown.lines().anyMatch(line -> line.matches(" *" + led.getKey() + " +" + led.getValue() + " .*")), shown);
            assertEquals(1, node.metric("postroad_cluster_store_led{store=\"" + led.getKey() + "\"}"), node.metrics());
        }
        assertTrue(within < BALANCED_WITHIN_MS, () -> within + " ms");
    }

    @Test
    @Order(2)
    @DisplayName("OpenWire and AMQP clients of each tenant at each node")
    void clientsConnectAnywhere() throws Exception {
        for (String tenant : TENANTS) {
            for (Clients.Protocol protocol : Clients.Protocol.values()) {
                for (Node node : cluster.nodes) {
                    String queue = tenant + "." + protocol;
                    try (Connection connection = connect(tenant, protocol, url(protocol, node))) {
                        send(connection, queue, List.of(tenant + " by " + node.name));
                    }
                }
                try (Connection connection = connect(tenant, protocol, url(protocol, cluster.nodes.get(0)))) {
                    List<String> want = cluster.nodes.stream().map(node -> tenant + " by " + node.name).toList();
                    assertEquals(want, receive(connection, tenant + "." + protocol, STORES), tenant);
                }
            }
        }
    }

    @Test
    @Order(2)
    @DisplayName("OpenWire with failover: the leader of the store moves the client to itself")
    void failoverClientsMove() throws Exception {
        String name = leaders(cluster.nodes.get(0)).get(2);
        Node leader = cluster.named(name);
        Node other = cluster.nodes.stream().filter(node -> node != leader).findFirst().orElseThrow();
        try (Connection connection = connect("south", Clients.Protocol.OPENWIRE, "failover:(" + other.url() + ")")) {
            send(connection, "south.moved", List.of("one"));
            assertEquals(List.of("one"), receive(connection, "south.moved", 1));
            cluster.await("the client is at " + name, () -> ((ActiveMQConnection) connection).getBrokerInfo().getBrokerURL().equals(leader.url()));
        }
    }

    @Test
    @Order(2)
    @DisplayName("a route works in the store of its tenant")
    void routes() throws Exception {
        for (String tenant : TENANTS) {
            try (Connection connection = connect(tenant, Clients.Protocol.AMQP, cluster.nodes.get(0).amqpUrl())) {
                send(connection, tenant + ".in", List.of("routed"));
                assertEquals(List.of("routed"), receive(connection, tenant + ".out", 1), tenant);
            }
        }
    }

    @Test
    @Order(3)
    @DisplayName("a link to another broker is opened by the leader of the store of its destinations")
    void links() throws Exception {
        cluster.await("one node has opened it", () -> {
            int opened = 0;
            for (int store = 1; store <= STORES; store++) {
                String bridges = curl("--user", "root:secret of root", cluster.nodes.get(0).httpUrl() + "/store/" + store + "/api/v1/bridges");
                opened += bridges.contains("\"far\"") ? store : 0;
            }
            return opened == 3;
        });
        try (Connection there = new ActiveMQConnectionFactory("tcp://127.0.0.1:" + peer).createConnection();
                Connection here = connect("east", Clients.Protocol.AMQP, cluster.nodes.get(1).amqpUrl())) {
            there.start();
            MessageConsumer consumer = there.createSession(false, Session.AUTO_ACKNOWLEDGE).createConsumer(
                    there.createSession(false, Session.AUTO_ACKNOWLEDGE).createQueue("east.far"));
            send(here, "east.far", List.of("over the link"));
            TextMessage message = (TextMessage) consumer.receive(SERVED_WITHIN_MS);
            assertEquals("over the link", message == null ? null : message.getText());
        }
    }

    @Test
    @Order(3)
    @DisplayName("a wrong password, and names of another store, are refused with a reason")
    void refusals() throws Exception {
        Node node = cluster.nodes.get(1);
        for (Clients.Protocol protocol : Clients.Protocol.values()) {
            String url = url(protocol, node);
            JMSException wrong = assertThrows(JMSException.class, () -> factory(protocol, url).createConnection("south.app", "guess").start());
            assertTrue(wrong.getMessage().matches("(?s).*(are wrong|failed to authenticate|SASL).*"), wrong.getMessage());
            try (Connection operator = factory(protocol, url).createConnection("root", "secret of root")) {
                operator.start();
                JMSException elsewhere = assertThrows(JMSException.class, () -> send(operator, "south.orders", List.of("x")));
                assertTrue(elsewhere.getMessage().contains("is in store 2 of the cluster"), elsewhere.getMessage());
                send(operator, "of-no-tenant", List.of("x"));
            }
        }
    }

    /** Runs curl, and returns what it printed. */
    private static String curl(String... arguments) throws Exception {
        List<String> command = new ArrayList<>(List.of("curl", "--silent", "--max-time", "20"));
        command.addAll(List.of(arguments));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        String printed = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        process.waitFor();
        return printed;
    }

    @Test
    @Order(4)
    @DisplayName("HTTP: requests of several tenants in one connection to any node, IronMQ and admin API")
    void httpRequests() throws Exception {
        for (Node node : cluster.nodes) {
            for (String tenant : TENANTS) {
                String queue = node.httpUrl() + "/3/projects/" + tenant + "/queues/http/messages";
                String token = "Authorization: OAuth " + tenant + ".app:secret of " + tenant + ".app";
                String posted = curl("--header", token, "--data", "{\"messages\":[{\"body\":\"" + tenant + " by " + node.name + "\"}]}", queue);
                assertTrue(posted.contains("Messages put on queue."), tenant + " at " + node.name + ": " + posted);
            }
        }
        Node node = cluster.nodes.get(2);
        List<String> urls = new ArrayList<>();
        for (int store = 1; store <= STORES; store++) {
            String listed = "/api/v1/queues/" + TENANTS.get(store - 1) + ".http";
            urls.addAll(List.of(node.httpUrl() + "/store/" + store + listed, node.httpUrl() + "/health/ready"));
        }
        List<String> arguments = new ArrayList<>(List.of("--user", "root:secret of root", "--write-out", " %{http_code} %{num_connects}\n"));
        arguments.addAll(urls);
        String all = curl(arguments.toArray(new String[0]));
        List<String> codes = all.lines().filter(line -> line.matches(".* \\d{3} \\d")).map(line -> line.replaceAll(".* (\\d{3} \\d)$", "$1")).toList();
        assertEquals("200 1", codes.get(0), all);
        assertTrue(codes.subList(1, codes.size()).stream().allMatch(code -> code.endsWith(" 0")), all);
        for (String tenant : TENANTS) {
            assertTrue(all.contains("\"" + tenant + ".http\""), all);
        }
        String missing = curl("--user", "root:secret of root", node.httpUrl() + "/store/4/api/v1/queues");
        assertTrue(missing.contains("the cluster has no store 4"), missing);
        String elsewhere = curl("--user", "root:secret of root", node.httpUrl() + "/api/v1/queues/south.http");
        assertTrue(elsewhere.contains("is in store 2 of the cluster"), elsewhere);
    }

    private static String asRoot(String... arguments) throws Exception {
        List<String> all = new ArrayList<>(List.of("--user", "root:secret of root"));
        all.addAll(List.of(arguments));
        return curl(all.toArray(new String[0]));
    }

    /** Messages of a queue in store 2 become dead letters, and go back by a redrive: its number. */
    private static String redriven(String queue, int count) throws Exception {
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(cluster.nodes.get(0).url());
        factory.getRedeliveryPolicy().setMaximumRedeliveries(0);
        try (Connection connection = factory.createConnection("south.app", "secret of south.app")) {
            connection.start();
            for (int number = 0; number < count; number++) {
                send(connection, queue, List.of("dead"));
                Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
                assertNotNull(session.createConsumer(session.createQueue(queue)).receive(SERVED_WITHIN_MS));
                session.rollback();
                session.close();
            }
        }
        String dead = cluster.nodes.get(0).httpUrl() + "/store/2/api/v1/queues/ActiveMQ.DLQ/redrive";
        var redrive = java.util.regex.Pattern.compile("\"redrive\":(\\d+)");
        cluster.await("a redrive of " + count, () -> {
            String planned = asRoot("--data", "{\"dry_run\":true}", dead);
            return planned.contains("\"messages\":" + count);
        });
        String answer = asRoot("--data", "{}", dead);
        var number = redrive.matcher(answer);
        assertTrue(number.find() && answer.contains("\"moved\":" + count), answer);
        return number.group(1);
    }

    @Test
    @Order(4)
    @DisplayName("SQS: a tenant's requests to any node, signed with a key of its user")
    void sqsRequests() throws Exception {
        String printed = cluster.leader().ctl("key", "new", "--user", "south.app");
        List<String> key = printed.lines().filter(line -> line.matches("aws_\\w+ *= *\\S+"))
                .map(line -> line.substring(line.indexOf('=') + 1).strip()).toList();
        assertEquals(2, key.size(), printed);
        for (Node node : cluster.nodes) {
            try (SqsClient sqs = SqsClient.builder().endpointOverride(URI.create(node.httpUrl())).region(Region.US_EAST_1)
                    .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create(key.get(0), key.get(1))))
                    .httpClient(UrlConnectionHttpClient.create()).build()) {
                // The key is known to the node and to the leader's within a second.
                cluster.await("the key is known", () -> {
                    try {
                        sqs.listQueues();
                        return true;
                    } catch (SqsException notYet) {
                        return false;
                    }
                });
                String url = sqs.createQueue(queue -> queue.queueName("south.fifo")
                        .attributes(Map.of(QueueAttributeName.FIFO_QUEUE, "true", QueueAttributeName.CONTENT_BASED_DEDUPLICATION, "true"))).queueUrl();
                sqs.sendMessage(message -> message.queueUrl(url).messageGroupId("g").messageBody("by " + node.name));
                var received = sqs.receiveMessage(receive -> receive.queueUrl(url).waitTimeSeconds(5)).messages();
                assertEquals(List.of("by " + node.name), received.stream().map(message -> message.body()).toList());
                sqs.deleteMessage(delete -> delete.queueUrl(url).receiptHandle(received.get(0).receiptHandle()));
                assertThrows(SqsException.class, () -> sqs.createQueue(queue -> queue.queueName("of-no-tenant")));
            }
        }
        assertTrue(cluster.leader().ctl("queues", "--store", "2").contains("south.fifo"));
    }

    @Test
    @Order(4)
    @DisplayName("a tenant that is made at run time has a store, and is served, listed and deleted there")
    void tenantsAreMade() throws Exception {
        Node leader = cluster.leader();
        String west = leader.ctl("tenant", "add", "west", "--store", "2");
        assertTrue(west.contains("the tenant west is in store 2"), west);
        String password = west.lines().filter(line -> line.startsWith("password")).map(line -> line.replaceAll("\\S+ +", "")).findFirst().orElseThrow();
        // Of the other two the first: each store had one tenant.
        String least = leader.ctl("tenant", "add", "least");
        assertTrue(least.contains("the tenant least is in store 1"), least);
        assertTrue(leader.ctl("tenant", "add", "far", "--store", "4").contains("the stores of this cluster are 1 to 3"));
        for (Node node : cluster.nodes) {
            cluster.await("the new user can log in at " + node.name, () -> {
                try (Connection connection = new JmsConnectionFactory(node.amqpUrl()).createConnection("west.admin", password)) {
                    connection.start();
                    send(connection, "west.made", List.of("by " + node.name));
                    return true;
                } catch (JMSException notYet) {
                    return false;
                }
            });
        }
        String listed = leader.ctl("tenant", "list");
        assertTrue(listed.lines().anyMatch(line -> line.matches("west +1 +\\d+ +1 +3 +.*")), listed);
        assertTrue(leader.ctl("tenant", "show", "west").matches("(?s).*store +2.*"), listed);
        String queues = leader.ctl("queues");
        for (String queue : List.of("north.", "south.", "east.", "west.made")) {
            assertTrue(queues.contains(queue), queues);
        }
        // Any node passes it on to the leader of the store, whichever that is.
        Node other = cluster.nodes.stream().filter(node -> node != leader).findFirst().orElseThrow();
        assertTrue(other.ctl("queues", "--store", "2").contains("west.made"));
        Path declared = Files.writeString(leader.data().resolveSibling("west.toml"), "tenant = \"west\"\n[[queue]]\nname = \"west.declared\"\n"
                + "[[route]]\nname = \"west.copies\"\nfrom = \"queue://west.in\"\nto = [{ destination = \"queue://west.declared\" }]\n");
        String applied = other.ctl("apply", declared.toString(), "--store", "1");
        assertTrue(applied.contains("is in store 2"), applied);
        applied = leader.ctl("apply", declared.toString());
        assertTrue(applied.contains("west.declared") && applied.contains("west.copies"), applied);
        cluster.await("the route works in the tenant's store", () -> {
            try (Connection connection = new JmsConnectionFactory(other.amqpUrl()).createConnection("west.admin", password)) {
                connection.start();
                send(connection, "west.in", List.of("x"));
                return other.ctl("queues", "--store", "2", "--filter", "west.declared", "--json").matches("(?s).*\"messages\":[1-9].*");
            }
        });
        // The node that leads its store counts them, whether it leads the first store or not.
        double counted = 0;
        for (Node node : cluster.nodes) {
            double own = node.metric("postroad_tenant_messages{tenant=\"west\"}");
            counted += Double.isNaN(own) ? 0 : own;
        }
        assertTrue(3 < counted, "counted: " + counted);
        String refused = leader.ctl("tenant", "delete", "west");
        assertTrue(refused.contains("the tenant west has 2 queues"), refused);
        String purged = other.ctl("purge", "west.made", "--store", "2");
        assertTrue(purged.contains("3"), purged);
        for (String queue : List.of("west.made", "west.in", "west.declared")) {
            other.ctl("purge", queue, "--store", "2");
            curl("--user", "root:secret of root", "--request", "DELETE", other.httpUrl() + "/store/2/api/v1/queues/" + queue);
        }
        String deleted = leader.ctl("tenant", "delete", "west");
        assertTrue(deleted.contains("deleted the tenant west"), deleted);
        leader.ctl("tenant", "delete", "least");
    }

    @Test
    @Order(4)
    @DisplayName("another store for a tenant of the configuration is refused when it is read again")
    void aTenantStaysInItsStore() throws Exception {
        Node node = cluster.nodes.get(0);
        node.reconfigure("store = 3", "store = 2");
        node.signal("HUP");
        cluster.await("it is refused", () -> node.hasLogged("[[tenant]] east has store = 2, and it is in store 3 with its messages"));
        node.reconfigure("(name = \"east\"\\n)store = 2", "$1store = 3");
        node.signal("HUP");
        cluster.await("it is taken", () -> node.hasLogged("configuration reloaded"));
    }

    @Test
    @Order(4)
    @DisplayName("drain: a node that leads another store than the first refuses messages and connections, and the others go on")
    void aNodeIsDrained() throws Exception {
        Node drained = cluster.named(leaders(cluster.nodes.get(0)).get(3));
        Node other = cluster.nodes.stream().filter(node -> node != drained).findFirst().orElseThrow();
        try (Connection east = connect("east", Clients.Protocol.AMQP, other.amqpUrl());
                Connection north = connect("north", Clients.Protocol.AMQP, other.amqpUrl())) {
            send(east, "east.drained", List.of("before"));
            String printed = drained.ctl("broker", "drain");
            assertTrue(printed.contains(", draining"), printed);
            assertTrue(drained.readiness().startsWith("draining"), drained.readiness());
            JMSException refused = assertThrows(JMSException.class, () -> send(east, "east.drained", List.of("x")));
            assertTrue(refused.getMessage().contains("drain"), refused.getMessage());
            send(north, "north.drained", List.of("x"));
            assertThrows(JMSException.class, () -> connect("north", Clients.Protocol.OPENWIRE, drained.url() + "?soTimeout=2000").close());
            assertTrue(drained.ctl("broker", "resume").contains(", running"));
            send(east, "east.drained", List.of("after"));
            assertEquals(List.of("before", "after"), receive(east, "east.drained", 2));
        }
    }

    @Test
    @Order(5)
    @DisplayName("a leader is killed: all tenants are served again, and nothing confirmed is lost")
    void aLeaderIsKilled() throws Exception {
        List<String> texts = new ArrayList<>();
        for (int number = 0; number < 50; number++) {
            texts.add("message " + number);
        }
        for (String tenant : TENANTS) {
            try (Connection connection = connect(tenant, Clients.Protocol.OPENWIRE, cluster.nodes.get(0).url())) {
                send(connection, tenant + ".kept", texts);
            }
        }
        String redrive = redriven("south.failing", 2);
        String name = leaders(cluster.nodes.get(0)).get(2);
        Node killed = cluster.named(name);
        List<Node> others = cluster.nodes.stream().filter(node -> node != killed).toList();
        killed.signal("KILL");
        killed.awaitEnd();
        long began = System.currentTimeMillis();
        for (String tenant : TENANTS) {
            for (Clients.Protocol protocol : Clients.Protocol.values()) {
                String urls = others.stream().map(node -> url(protocol, node)).collect(Collectors.joining(","));
                try (Connection connection = connect(tenant, protocol, "failover:(" + urls + ")")) {
                    send(connection, tenant + ".after", List.of(protocol.toString()));
                }
            }
        }
        long served = System.currentTimeMillis() - began;
        System.out.println("stores: all tenants were served after the end of a leader, ms: " + served);
        assertTrue(served < SERVED_WITHIN_MS, () -> served + " ms");
        for (String tenant : TENANTS) {
            try (Connection connection = connect(tenant, Clients.Protocol.AMQP, others.get(0).amqpUrl())) {
                assertEquals(texts, receive(connection, tenant + ".kept", texts.size()), tenant);
                List<String> want = Arrays.stream(Clients.Protocol.values()).map(Object::toString).toList();
                assertEquals(want, receive(connection, tenant + ".after", want.size()), tenant);
            }
        }
        String redrives = others.get(0).httpUrl() + "/store/2/api/v1/redrives";
        String undone = asRoot("--data", "{}", redrives + "/" + redrive + "/undo");
        assertTrue(undone.contains("\"moved\":2,\"in_flight\":0,\"dead_again\":0,\"gone\":0"), undone);
        assertTrue(asRoot(redrives).contains("\"undone\":2"), asRoot(redrives));
        killed.start();
        long within = awaitLeadersOnThreeNodes();
        System.out.println("stores: leaders on three nodes after the return of a node, ms: " + within);
        assertTrue(within < BALANCED_WITHIN_MS, () -> within + " ms");
    }

    @Test
    @Order(6)
    @DisplayName("a client with failover goes on when the leader of its store ends in order")
    void aLeaderEndsInOrder() throws Exception {
        String name = leaders(cluster.nodes.get(0)).get(3);
        Node ends = cluster.named(name);
        String urls = cluster.nodes.stream().map(Node::url).collect(Collectors.joining(","));
        try (Connection connection = connect("east", Clients.Protocol.OPENWIRE, "failover:(" + urls + ")")) {
            send(connection, "east.ordered", List.of("before"));
            ends.signal("TERM");
            ends.awaitEnd();
            send(connection, "east.ordered", List.of("after"));
            assertEquals(List.of("before", "after"), receive(connection, "east.ordered", 2));
        }
    }

    @Test
    @Order(7)
    @DisplayName("another number of stores is refused at the start")
    void theNumberOfStoresIsRecorded() throws Exception {
        Node node = cluster.nodes.stream().filter(one -> !one.isAlive()).findFirst().orElseThrow();
        for (String stores : List.of("2", "1")) {
            node.reconfigure("stores = \\d+", "stores = " + stores);
            node.reconfigure("store = \\d+", "store = 1");
            node.start();
            node.awaitEnd();
            String want = "cluster.stores is " + stores;
            assertTrue(node.tail().contains(want) && node.tail().contains("that of a node with 3"), node.tail());
        }
        // Of all tenants it says that they are in store 1 now.
        node.reconfigure("stores = \\d+", "stores = 3");
        node.start();
        node.awaitEnd();
        assertTrue(node.tail().contains("which do not move: set store = "), node.tail());
    }
}

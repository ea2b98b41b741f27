package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Base64;
import java.util.List;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Three nodes with two stores: the requests of the console, with its cookie and CSRF token. */
@Timeout(240)
@DisplayName("sessions of the console: one sign-in at any node is good for all stores, at all nodes")
class ConsoleSessionsTest {
    private static final HttpClient HTTP = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(2)).build();
    private static final Pattern CSRF = Pattern.compile("\"csrf\":\"(\\w+)\"");

    /** A browser's session: its cookie, and what changes must repeat. */
    private record Signed(String cookie, String csrf) { }

    private static String configuration(Path users) {
        StringBuilder text = new StringBuilder("[cluster]\nstores = 2\n[security]\nusers = \"" + users + "\"\n");
        text.append("[[security.permission]]\nusers = [\"root\"]\ndestinations = [\"queue://>\", \"topic://>\"]\n"
                + "actions = [\"read\", \"write\", \"create\", \"manage\", \"admin\"]\n");
        List<String> tenants = List.of("north", "south");
        for (String tenant : tenants) {
            text.append("[[security.group]]\nname = \"tenant:" + tenant + "\"\nusers = [\"" + tenant + ".app\"]\n[[tenant]]\nname = \"" + tenant
                    + "\"\nstore = " + (tenants.indexOf(tenant) + 1) + "\n");
        }
        return text.toString();
    }

    private static HttpResponse<String> ask(String method, String url, Signed as, String body) throws Exception {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofSeconds(10))
                .method(method, body == null ? BodyPublishers.noBody() : BodyPublishers.ofString(body))
                .header("Content-Type", "application/json").header("X-Postroad-Console", "1");
        if (as != null) {
            request.header("Cookie", "theme=dark; " + as.cookie);
            request.header("X-Postroad-Csrf", as.csrf);
        }
        return HTTP.send(request.build(), HttpResponse.BodyHandlers.ofString());
    }

    private static int status(String method, String url, Signed as, String body) throws Exception {
        return ask(method, url, as, body).statusCode();
    }

    private static Signed signIn(Node node, String user) throws Exception {
        HttpResponse<String> answer = ask("POST", node.httpUrl() + "/api/v1/session", null,
                "{\"user\":\"" + user + "\",\"password\":\"secret of " + user + "\"}");
        assertEquals(200, answer.statusCode(), answer.body());
        String cookie = answer.headers().firstValue("Set-Cookie").orElseThrow();
        assertTrue(cookie.contains("; HttpOnly; SameSite=Strict; Path=/"), cookie);
        var csrf = CSRF.matcher(answer.body());
        assertTrue(csrf.find() && answer.body().contains("\"stores\":2"), answer.body());
        return new Signed(cookie.substring(0, cookie.indexOf(';')), csrf.group(1));
    }

    /** The user sees and changes the queues of its tenant by this node, and no others. */
    private static void operates(Node node, Signed south, String queue) throws Exception {
        String queues = node.httpUrl() + "/api/v1/queues";
        assertEquals(201, status("PUT", queues + "/" + queue, south, null), queue);
        HttpResponse<String> sent = ask("POST", queues + "/" + queue + "/messages", south, "{\"body\":\"by " + node.name + "\"}");
        assertEquals(201, sent.statusCode(), sent.body());
        HttpResponse<String> browsed = ask("GET", queues + "/" + queue + "/messages", south, null);
        assertTrue(browsed.body().contains("by " + node.name), browsed.body());
        HttpResponse<String> listed = ask("GET", queues, south, null);
        assertTrue(listed.body().contains(queue) && !listed.body().contains("north."), listed.body());
        assertEquals(403, status("PUT", queues + "/north.of-another", south, null));
        assertEquals(403, status("PUT", queues + "/" + queue, new Signed(south.cookie, "x"), null), "without the CSRF token");
    }

    /** The operator sees and changes the queues of both stores by this node. */
    private static void operatesAll(Node node, Signed root) throws Exception {
        for (String queue : List.of("north.of-root", "south.of-root")) {
            String store = node.httpUrl() + "/store/" + (queue.startsWith("north") ? 1 : 2) + "/api/v1/";
            HttpResponse<String> sent = ask("POST", store + "queues/" + queue + "/messages", root, "{\"body\":\"x\"}");
            assertEquals(201, sent.statusCode(), sent.body());
            HttpResponse<String> listed = ask("GET", store + "queues", root, null);
            String other = queue.startsWith("north") ? "\"south." : "\"north.";
            assertTrue(listed.body().contains(queue) && !listed.body().contains(other), listed.body());
            assertEquals(200, status("POST", store + "queues/" + queue + "/purge", root, null));
            assertEquals(200, status("GET", store + "overview", root, null));
        }
        HttpResponse<String> missing = ask("GET", node.httpUrl() + "/store/3/api/v1/queues", root, null);
        assertTrue(missing.statusCode() == 421 && missing.body().contains("the cluster has no store 3"), missing.body());
    }

    private static TreeMap<Integer, String> leaders(Cluster cluster) throws Exception {
        TreeMap<Integer, String> known = new TreeMap<>();
        cluster.await("a leader of each store", () -> {
            for (Node node : cluster.nodes) {
                if (node.isAlive()) {
                    known.clear();
                    known.putAll(StoresTest.leaders(node));
                }
            }
            return known.size() == 2 && known.values().stream().allMatch(name -> cluster.named(name).isAlive());
        });
        return known;
    }

    @Test
    @DisplayName("a tenant of store 2 and an operator at each node, after the end of each leader, and signed out everywhere")
    void oneSignIn() throws Exception {
        Path users = StoresTest.users();
        try (Cluster cluster = new Cluster("sessions", node -> configuration(users))) {
            cluster.leader();
            leaders(cluster);
            Signed south = signIn(cluster.nodes.get(0), "south.app");
            Signed root = signIn(cluster.nodes.get(1), "root");
            for (Node node : cluster.nodes) {
                operates(node, south, "south.by-" + node.name);
                operatesAll(node, root);
                anUnknownKeyIsRefusedAtOnce(node);
            }
            for (int store = 1; store <= 2; store++) {
                Node killed = cluster.named(leaders(cluster).get(store));
                killed.signal("KILL");
                killed.awaitEnd();
                leaders(cluster);
                for (Node node : cluster.nodes.stream().filter(Node::isAlive).toList()) {
                    cluster.await("both stores are served by " + node.name, () -> status("GET", node.httpUrl() + "/api/v1/session", south, null) == 200
                            && status("GET", node.httpUrl() + "/api/v1/queues", south, null) == 200
                            && status("GET", node.httpUrl() + "/store/1/api/v1/queues", root, null) == 200);
                    operates(node, south, "south.after-" + store + "-" + node.name);
                    operatesAll(node, root);
                }
                killed.start();
                cluster.await(killed.name + " is back", () -> served(killed, south));
            }
            endsEverywhere(cluster, south, root);
        }
    }

    /** Only a key that may be newer than those that the leaders know is awaited, for two seconds. */
    private static void anUnknownKeyIsRefusedAtOnce(Node node) throws Exception {
        long now = System.currentTimeMillis();
        String said = "[1,\"aaaaaaaaaaaaaaaa\",\"bbbbbbbbbbbbbbbb\"," + now + "," + now + ",\"root\",null]";
        Signed forged = new Signed("postroad-session=" + Base64.getUrlEncoder().withoutPadding().encodeToString(said.getBytes(StandardCharsets.UTF_8))
                + "." + "A".repeat(43), "x");
        for (String path : List.of("/api/v1/queues", "/store/2/api/v1/queues")) {
            long fastest = Long.MAX_VALUE;
            for (int attempt = 0; attempt < 3; attempt++) {
                long begun = System.nanoTime();
                HttpResponse<String> refused = ask("GET", node.httpUrl() + path, forged, null);
                assertEquals(401, refused.statusCode(), node.name + path + ": " + refused.body());
                fastest = Math.min(fastest, (System.nanoTime() - begun) / 1_000_000);
            }
            assertTrue(fastest < 1500, node.name + path + ": " + fastest + " ms");
        }
    }

    private static boolean served(Node node, Signed as) throws Exception {
        try {
            return status("GET", node.httpUrl() + "/api/v1/queues", as, null) == 200;
        } catch (IOException notYet) {
            return false;
        }
    }

    private static void endsEverywhere(Cluster cluster, Signed south, Signed root) throws Exception {
        Signed other = signIn(cluster.nodes.get(2), "south.app");
        String said = south.cookie.substring(0, south.cookie.indexOf('.'));
        Signed forged = new Signed(said + other.cookie.substring(other.cookie.indexOf('.')), south.csrf);
        assertEquals(401, status("GET", cluster.nodes.get(0).httpUrl() + "/api/v1/queues", forged, null), "another session's seal");
        assertEquals(403, status("DELETE", cluster.nodes.get(1).httpUrl() + "/api/v1/session", new Signed(south.cookie, "x"), null));
        assertEquals(204, status("DELETE", cluster.nodes.get(1).httpUrl() + "/store/2/api/v1/session", south, null));
        for (Node node : cluster.nodes) {
            cluster.await("the session has ended at " + node.name, () -> status("GET", node.httpUrl() + "/api/v1/queues", south, null) == 401
                    && status("GET", node.httpUrl() + "/store/1/api/v1/queues", south, null) == 401);
            assertEquals(200, status("GET", node.httpUrl() + "/api/v1/queues", other, null), "the other one of the user goes on");
            assertEquals(200, status("GET", node.httpUrl() + "/store/2/api/v1/queues", root, null));
        }
    }
}

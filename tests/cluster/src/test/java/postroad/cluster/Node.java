package postroad.cluster;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** One {@code postroad serve} process of a cluster, with a data directory and ports of its own that outlive the process. */
final class Node {
    private static final Duration WITHIN = Duration.ofSeconds(30);
    private static final HttpClient HTTP = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(1)).build();

    final int number;
    final String name;
    private final Path directory;
    private final int clients;
    private final int http;
    private final int amqp;
    private final String configuration;
    final String listen;
    private final List<String> seeds;
    private final List<Path> wiped = new ArrayList<>();
    private Process process;

    Node(int number, Path directory, int[] ports, List<String> seeds, boolean isBehindProxy) throws IOException {
        this(number, "n" + number, directory, ports, seeds, isBehindProxy);
    }

    Node(int number, String name, Path directory, int[] ports, List<String> seeds, boolean isBehindProxy) throws IOException {
        this.number = number;
        this.name = name;
        this.directory = Files.createDirectories(directory.resolve(number + "-" + name));
        this.clients = ports[0];
        this.http = ports[1];
        this.amqp = ports[3];
        this.listen = "127.0.0.1:" + ports[2];
        this.seeds = seeds;
        String configuration = "[ports]\nopenwire = " + ports[0] + "\nhttp = " + ports[1] + "\namqp = " + ports[3]
                + "\namqp_websocket = " + ports[4] + "\n[runtime]\ncores = 1\n";
        if (isBehindProxy) {
            configuration += "[cluster]\nbind = \"127.0.0.1:" + ports[5] + "\"\n";
        }
        this.configuration = configuration;
        configure("");
    }

    /** From the next start on it has this configuration as well. */
    void configure(String more) throws IOException {
        Files.writeString(directory.resolve("postroad.toml"), configuration + more);
    }

    /** From the next start on its configuration has this in place of each match of an expression. */
    void reconfigure(String expression, String replacement) throws IOException {
        Path file = directory.resolve("postroad.toml");
        Files.writeString(file, Files.readString(file).replaceAll(expression, replacement));
    }

    String url() {
        return "tcp://127.0.0.1:" + clients;
    }

    String amqpUrl() {
        return "amqp://127.0.0.1:" + amqp;
    }

    String httpUrl() {
        return "http://127.0.0.1:" + http;
    }

    static String binary() {
        return System.getProperty("postroad.bin", "../../target/release/postroad");
    }

    /** What {@code postroad ctl} prints about this node, in both its streams. */
    String ctl(String... arguments) throws IOException, InterruptedException {
        return ctlIn(data(), arguments);
    }

    /** The same beside the test; its error in place of its output if it cannot be run. */
    CompletableFuture<String> ctlLater(String... arguments) {
        return CompletableFuture.supplyAsync(() -> {
            try {
                return ctl(arguments);
            } catch (Exception failed) {
                return failed.toString();
            }
        });
    }

    /** The same about one of its further stores. */
    String ctlOfStore(int store, String... arguments) throws IOException, InterruptedException {
        return ctlIn(store == 1 ? data() : data().resolve("store-" + store), arguments);
    }

    private static String ctlIn(Path data, String... arguments) throws IOException, InterruptedException {
        List<String> command = new ArrayList<>(List.of(binary(), "ctl"));
        command.addAll(List.of(arguments));
        command.addAll(List.of("--data", data.toString()));
        Process ctl = new ProcessBuilder(command).redirectErrorStream(true).start();
        String printed = new String(ctl.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        ctl.waitFor();
        return printed.strip();
    }

    void start() throws IOException {
        Path log = directory.resolve("log");
        process = new ProcessBuilder(binary(), "serve",
                "--config", directory.resolve("postroad.toml").toString(), "--data", directory.resolve("data").toString(),
                "--node", name, "--cluster-listen", listen, "--cluster-seeds", String.join(",", seeds))
                .redirectOutput(ProcessBuilder.Redirect.appendTo(log.toFile()))
                .redirectError(ProcessBuilder.Redirect.appendTo(log.toFile()))
                .start();
    }

    boolean isAlive() {
        return process != null && process.isAlive();
    }

    /** The answer of its HTTP port; empty if there is none. */
    private HttpResponse<String> get(String path) throws InterruptedException {
        return get(HttpRequest.newBuilder(URI.create(httpUrl() + path)));
    }

    private static HttpResponse<String> get(HttpRequest.Builder builder) throws InterruptedException {
        HttpRequest request = builder.timeout(Duration.ofSeconds(1)).build();
        try {
            return HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        } catch (IOException noAnswer) {
            return null;
        }
    }

    /** Whether it serves clients, or why not; empty if there is no answer. */
    String readiness() throws InterruptedException {
        HttpResponse<String> ready = get("/health/ready");
        return ready == null ? "" : ready.body();
    }

    boolean serves() throws InterruptedException {
        return readiness().startsWith("ready");
    }

    /** Whether it says that it follows another node. */
    boolean follows() throws InterruptedException {
        return readiness().startsWith("follower: " + name + " follows ");
    }

    /** What it knows of the cluster, as JSON. */
    String cluster() throws InterruptedException {
        HttpResponse<String> cluster = get("/api/v1/cluster");
        return cluster == null ? "" : cluster.body();
    }

    /** The same, for a user. */
    String cluster(String user, String password) throws InterruptedException {
        String login = Base64.getEncoder().encodeToString((user + ":" + password).getBytes(StandardCharsets.UTF_8));
        HttpResponse<String> cluster = get(HttpRequest.newBuilder(URI.create(httpUrl() + "/api/v1/cluster"))
                .header("Authorization", "Basic " + login));
        return cluster == null ? "" : cluster.body();
    }

    /** Its metrics, in the text format of Prometheus. */
    String metrics() throws InterruptedException {
        HttpResponse<String> metrics = get("/metrics");
        return metrics == null ? "" : metrics.body();
    }

    /** The value of a metric with these labels; NaN if there is none. */
    double metric(String series) throws InterruptedException {
        return metrics().lines().filter(line -> line.startsWith(series + " "))
                .mapToDouble(line -> Double.parseDouble(line.substring(series.length() + 1))).findFirst().orElse(Double.NaN);
    }

    /** Whether it says that the disk of that node is full. */
    boolean saysFull(Node node) throws InterruptedException {
        return metric("postroad_cluster_full{node=\"" + node.name + "\"}") == 1;
    }

    /** {@code SIGKILL}, {@code SIGSTOP}, {@code SIGCONT} or {@code SIGTERM}. */
    void signal(String signal) throws IOException, InterruptedException {
        new ProcessBuilder("kill", "-" + signal, String.valueOf(process.pid())).start().waitFor();
    }

    void awaitEnd() throws InterruptedException {
        if (!process.waitFor(WITHIN.toSeconds(), TimeUnit.SECONDS)) {
            throw new IllegalStateException(name + " does not end");
        }
    }

    void destroy() throws InterruptedException {
        if (process != null) {
            process.destroyForcibly().waitFor();
        }
    }

    /** The disk of a node that does not run is replaced by an empty one. */
    void wipe() throws IOException {
        Files.move(directory.resolve("data"), directory.resolve("wiped-" + wiped.size()));
        wiped.add(directory.resolve("wiped-" + wiped.size()));
    }

    /** All files of a node that does not run are gone. */
    void erase() throws IOException {
        try (Stream<Path> files = Files.walk(data())) {
            for (Path file : files.sorted(Comparator.reverseOrder()).filter(file -> !file.equals(data())).toList()) {
                Files.delete(file);
            }
        }
    }

    /** The disk that was replaced last is back. */
    void returnDisk() throws IOException {
        Files.move(directory.resolve("data"), directory.resolve("later"));
        Files.move(wiped.get(wiped.size() - 1), directory.resolve("data"));
    }

    /** Its data directory. */
    Path data() {
        return directory.resolve("data");
    }

    /** Some bytes of its first segment change on the disk, about this far from its beginning. */
    void flip(long offset) throws IOException {
        Path segment;
        try (Stream<Path> files = Files.list(data())) {
            segment = files.filter(file -> file.toString().endsWith(".segment")).sorted().findFirst().orElseThrow();
        }
        try (RandomAccessFile file = new RandomAccessFile(segment.toFile(), "rw")) {
            file.seek(offset);
            byte[] bytes = new byte[64];
            file.readFully(bytes);
            for (int place = 0; place < bytes.length; place++) {
                bytes[place] ^= 1;
            }
            file.seek(offset);
            file.write(bytes);
        }
    }

    boolean hasLogged(String text) throws IOException {
        return process != null && Files.readString(directory.resolve("log")).contains(text);
    }

    /** The end of its log. */
    String tail() throws IOException {
        if (process == null) {
            return name + " was not started\n";
        }
        List<String> lines = Files.readAllLines(directory.resolve("log"));
        return name + ":\n" + String.join("\n", lines.subList(Math.max(0, lines.size() - 25), lines.size())) + "\n";
    }
}

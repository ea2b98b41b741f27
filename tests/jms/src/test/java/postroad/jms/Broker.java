package postroad.jms;

import java.io.IOException;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.SocketException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/**
 * One {@code postroad serve} process with a data directory and a port offset of its own.
 *
 * <p>Both survive {@link #stop} and {@link #kill}, so that {@link #start} serves the same data on the
 * same ports again. What the process prints stays in {@code target/broker/}.
 */
final class Broker implements AutoCloseable {
    private static final Duration READY_WITHIN = Duration.ofSeconds(30);
    private static final Duration STOPPED_WITHIN = Duration.ofSeconds(20);
    private static final int OPENWIRE_PORT = 61616;
    private static final int OPENWIRE_TLS_PORT = 61617;
    private static final int AMQP_PORT = 5672;
    private static final int HTTP_PORT = 8161;
    private static final int AMQP_TLS_PORT = 5671;
    private static final int AMQP_WEBSOCKET_PORT = 61614;
    private static final int AMQP_WEBSOCKET_TLS_PORT = 61619;
    /** Every port the broker may open by default; an offset is used only if all of them are free. */
    private static final int[] DEFAULT_PORTS = {
        1883, AMQP_TLS_PORT, AMQP_PORT, 8080, HTTP_PORT, 9876, 10911, 61613, AMQP_WEBSOCKET_PORT, OPENWIRE_PORT,
        OPENWIRE_TLS_PORT, AMQP_WEBSOCKET_TLS_PORT};
    /** Keeps the highest port with its offset a legal one. */
    private static final int OFFSET_MAX = 65535 - AMQP_WEBSOCKET_TLS_PORT;
    /** Offsets are multiples of this, as the services' usual ports are closer together; see tests/ports.py. */
    private static final int OFFSET_STEP = 8;
    private static final int TAIL_LINES = 15;

    private final String name;
    private final Path directory;
    private final int portOffset;
    /** A UDP socket at the OpenWire port: while it is open, no other test takes this offset. */
    private final DatagramSocket reservation;
    private Process process;
    private int starts;

    private Broker(String name) throws IOException {
        this.name = name;
        Path parent = Files.createDirectories(Path.of("target", "broker").toAbsolutePath());
        this.directory = Files.createTempDirectory(parent, name + "-");
        this.reservation = reserved();
        this.portOffset = reservation.getLocalPort() - OPENWIRE_PORT;
    }

    /** Starts a broker on an empty data directory and waits until it says that it is ready. */
    static Broker launch(String name) throws IOException, InterruptedException {
        return launch(name, "");
    }

    /** As {@link #launch(String)}, with this configuration. */
    static Broker launch(String name, String configuration) throws IOException, InterruptedException {
        Broker broker = new Broker(name);
        Files.writeString(broker.configuration(), configuration);
        broker.start();
        return broker;
    }

    /** The configuration of a broker that lets this user in alone; more of {@code [security]} may follow. */
    static String usersConfiguration(String... namesAndPasswords) throws IOException, InterruptedException {
        Path users = Files.createTempDirectory(Files.createDirectories(Path.of("target").toAbsolutePath()), "users-").resolve("users");
        for (int at = 0; at < namesAndPasswords.length; at += 2) {
            Process adding = new ProcessBuilder(binary().toString(), "user", "add", namesAndPasswords[at], "--users", users.toString())
                    .redirectErrorStream(true).start();
            adding.getOutputStream().write((namesAndPasswords[at + 1] + "\n").getBytes(StandardCharsets.UTF_8));
            adding.getOutputStream().close();
            String said = new String(adding.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            if (adding.waitFor() != 0) {
                throw new IOException("postroad user add: " + said);
            }
        }
        return "[security]\nusers = '" + users + "'\n";
    }

    /** The configuration that {@code postroad config import} makes of this {@code activemq.xml}. */
    static String imported(String xml) throws IOException, InterruptedException {
        Path file = Files.createTempFile(Files.createDirectories(Path.of("target").toAbsolutePath()), "activemq-", ".xml");
        Files.writeString(file, xml);
        Process importing = new ProcessBuilder(binary().toString(), "config", "import", file.toString())
                .redirectError(ProcessBuilder.Redirect.DISCARD).start();
        String configuration = new String(importing.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        if (importing.waitFor() != 0) {
            throw new IOException("postroad config import failed: " + file);
        }
        return configuration;
    }

    String url() {
        return "tcp://127.0.0.1:" + (OPENWIRE_PORT + portOffset);
    }

    /** With a certificate in its configuration. */
    String tlsUrl() {
        return "ssl://127.0.0.1:" + (OPENWIRE_TLS_PORT + portOffset);
    }

    String httpUrl() {
        return "http://127.0.0.1:" + (HTTP_PORT + portOffset);
    }

    String amqpUrl() {
        return "amqp://127.0.0.1:" + (AMQP_PORT + portOffset);
    }

    /** With a certificate in its configuration. */
    String amqpsUrl() {
        return "amqps://127.0.0.1:" + (AMQP_TLS_PORT + portOffset);
    }

    String amqpwsUrl() {
        return "amqpws://127.0.0.1:" + (AMQP_WEBSOCKET_PORT + portOffset);
    }

    /** With a certificate in its configuration. */
    String amqpwssUrl() {
        return "amqpwss://127.0.0.1:" + (AMQP_WEBSOCKET_TLS_PORT + portOffset);
    }

    boolean isAlive() {
        return process != null && process.isAlive();
    }

    /**
     * Starts the process on this broker's data and ports.
     *
     * @return the time from the spawn to the line {@code postroad ready}
     */
    Duration start() throws IOException, InterruptedException {
        if (isAlive()) {
            throw new IllegalStateException(name + " is already running");
        }
        starts++;
        long spawned = System.nanoTime();
        process = new ProcessBuilder(binary().toString(), "serve",
                "--config", configuration().toString(), "--data", directory.resolve("data").toString(), "--port-offset", String.valueOf(portOffset))
                .redirectOutput(output("out").toFile())
                .redirectError(output("err").toFile())
                .start();
        while (!saysReady()) {
            if (!process.isAlive()) {
                throw new IOException("the broker ended before it was ready: " + obituary());
            }
            if (System.nanoTime() - spawned > READY_WITHIN.toNanos()) {
                process.destroyForcibly();
                throw new IOException("no line 'postroad ready' within " + READY_WITHIN + ": " + tail());
            }
            Thread.sleep(2);
        }
        return Duration.ofNanos(System.nanoTime() - spawned);
    }

    /** What {@code postroad WORDS --data …} prints, asked of this running broker. */
    String command(String... words) throws IOException, InterruptedException {
        List<String> line = new ArrayList<>(List.of(binary().toString()));
        line.addAll(List.of(words));
        line.addAll(List.of("--data", directory.resolve("data").toString()));
        Process asking = new ProcessBuilder(line).redirectErrorStream(true).start();
        String said = new String(asking.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        if (asking.waitFor() != 0) {
            throw new IOException(String.join(" ", words) + ": " + said);
        }
        return said;
    }

    /** Asks the process to end (SIGTERM), waits, and returns its exit code; 0 is the only good one. */
    int stop() throws InterruptedException {
        process.destroy();
        if (!process.waitFor(STOPPED_WITHIN.toMillis(), TimeUnit.MILLISECONDS)) {
            process.destroyForcibly().waitFor();
            throw new AssertionError(name + " was still alive " + STOPPED_WITHIN + " after SIGTERM: " + tail());
        }
        return process.exitValue();
    }

    /** SIGKILL: the process gets no chance to tidy up. */
    void kill() throws InterruptedException {
        process.destroyForcibly().waitFor();
    }

    /** SIGSTOP: the process keeps its sockets and does nothing until {@link #thaw}. */
    void freeze() throws IOException, InterruptedException {
        signal("-STOP");
    }

    /** SIGCONT. */
    void thaw() throws IOException, InterruptedException {
        signal("-CONT");
    }

    /** SIGHUP: the process reads its configuration again. */
    void reload() throws IOException, InterruptedException {
        signal("-HUP");
    }

    private void signal(String name) throws IOException, InterruptedException {
        Process sending = new ProcessBuilder("kill", name, String.valueOf(process.pid())).start();
        if (sending.waitFor() != 0) {
            throw new IOException("kill " + name + " " + process.pid() + " failed");
        }
    }

    /** What the process logs, since it was started last. */
    String log() throws IOException {
        return Files.readString(output("err"));
    }

    /** Takes effect with the next {@link #start}. */
    void configure(String configuration) throws IOException {
        Files.writeString(configuration(), configuration);
    }

    /** Ends the process and removes its data; what it printed is kept. */
    @Override
    public void close() throws IOException, InterruptedException {
        if (isAlive()) {
            kill();
        }
        reservation.close();
        Path data = directory.resolve("data");
        if (!Files.exists(data)) {
            return;
        }
        try (Stream<Path> files = Files.walk(data)) {
            for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.deleteIfExists(file);
            }
        }
    }

    /** How the process ended, and the last lines that it printed. */
    String obituary() {
        return name + " has exit code " + (isAlive() ? "none (alive)" : process.exitValue()) + "; " + tail();
    }

    private String tail() {
        Path errors = output("err");
        try {
            List<String> lines = Files.readAllLines(errors);
            int from = Math.max(0, lines.size() - TAIL_LINES);
            return "end of " + errors + ":\n" + String.join("\n", lines.subList(from, lines.size()));
        } catch (IOException unreadable) {
            return "nothing readable in " + errors;
        }
    }

    private Path configuration() {
        return directory.resolve("postroad.toml");
    }

    private Path output(String kind) {
        return directory.resolve("run-" + starts + "." + kind);
    }

    private boolean saysReady() throws IOException {
        return Files.readString(output("out"), StandardCharsets.ISO_8859_1).contains("postroad ready\n");
    }

    /** {@code -Dpostroad.bin}, or target/release/postroad of the repository this project lies in. */
    private static Path binary() throws IOException {
        String given = System.getProperty("postroad.bin");
        Path binary = given != null ? Path.of(given) : null;
        for (Path up = Path.of("").toAbsolutePath(); binary == null && up != null; up = up.getParent()) {
            if (Files.exists(up.resolve("Cargo.toml"))) {
                binary = up.resolve("target/release/postroad");
            }
        }
        if (binary == null || !Files.isExecutable(binary)) {
            throw new IOException("no broker to test: " + binary + " is not executable; build it with "
                    + "`cargo build --release`, or give -Dpostroad.bin=FILE or -Dbroker.url=tcp://HOST:PORT");
        }
        return binary;
    }

    private static DatagramSocket reserved() throws IOException {
        Random random = new Random();
        for (int attempt = 0; attempt < 1000; attempt++) {
            int offset = OFFSET_STEP * (1 + random.nextInt(OFFSET_MAX / OFFSET_STEP));
            DatagramSocket reservation;
            try {
                reservation = new DatagramSocket(OPENWIRE_PORT + offset, InetAddress.getLoopbackAddress());
            } catch (SocketException taken) {
                continue;
            }
            if (IntStream.of(DEFAULT_PORTS).allMatch(port -> isFree(port + offset))) {
                return reservation;
            }
            reservation.close();
        }
        throw new IOException("found no port offset with all of the broker's ports free");
    }

    private static boolean isFree(int port) {
        try (ServerSocket socket = new ServerSocket()) {
            socket.setReuseAddress(true);
            socket.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
            return true;
        } catch (IOException taken) {
            return false;
        }
    }
}

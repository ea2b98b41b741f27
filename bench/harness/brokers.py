"""The brokers that are compared: how each is fetched, started on the loopback interface and stopped.

All keep messages on disk and confirm a durable send when it is there, as they come out of the box.
"""

import os
import re
import shutil
import subprocess
import tarfile
import time

from . import amqp, openwire
from .process import Process

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
REPOSITORY = os.path.dirname(HERE)
START_SECONDS_MAX = 120
POLL_SECONDS = 0.005
COPY_ARTIFACT = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
COPY_JARS = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def maven(*arguments, directory=None):
    done = subprocess.run(["mvn", "-q", "-B", *arguments], cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"mvn {' '.join(arguments)} failed:\n{(done.stdout + done.stderr)[-3000:]}")


def copy_jars(pom, cache):
    """The dependencies of a project, in `lib` of the cache."""
    jars = os.path.join(cache, "lib")
    if not os.path.isdir(jars):
        unfinished = jars + ".part"
        maven("-f", pom, COPY_JARS, "-DincludeScope=runtime", f"-DoutputDirectory={unfinished}")
        os.rename(unfinished, jars)


def await_answer(protocol, port, seconds_max, still_alive):
    """Polls until the broker answers; `still_alive` raises if it never will."""
    end = time.monotonic() + seconds_max
    while not protocol.answers(port):
        still_alive()
        if end < time.monotonic():
            raise RuntimeError(f"no answer on port {port} within {seconds_max} s")
        time.sleep(POLL_SECONDS)


class Broker:
    """One broker; `start` leaves it serving on `port` from an empty directory."""

    name = ""
    version = ""
    port = 0
    # What the client speaks, and the scheme of the URL by which it knows that.
    protocol = openwire
    scheme = "tcp"
    # What the name of a queue has in front.
    queue_prefix = ""

    def __init__(self, cache, scratch):
        self.cache = os.path.join(cache, f"{self.name}-{self.version}")
        self.data = os.path.join(scratch, self.name)
        self.process = None
        self.start_milliseconds = 0.0

    def install(self):
        """Fetches what is not in the cache yet."""

    def prepare(self):
        """Writes the configuration into the empty data directory."""

    def command(self):
        raise NotImplementedError

    def environment(self):
        return {}

    def start(self):
        shutil.rmtree(self.data, ignore_errors=True)
        os.makedirs(self.data)
        self.prepare()
        self.launch()

    def launch(self):
        """Starts it on what its data directory holds."""
        log = os.path.join(os.path.dirname(self.data), f"{self.name}.log")
        self.process = Process(self.command(), self.data, log, self.environment())
        try:
            await_answer(self.protocol, self.port, START_SECONDS_MAX, lambda: self.process.require_alive(self.name))
        except BaseException:
            self.stop()
            raise
        self.start_milliseconds = (time.monotonic() - self.process.started) * 1000

    def stop(self):
        if self.process is not None:
            self.process.stop()
            self.process = None
        shutil.rmtree(self.data, ignore_errors=True)

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.port}"


class Postroad(Broker):
    name = "postroad"
    # Of its own, if it is not to take a quarter of the machine's.
    memory_bytes = None
    port_offset = 300
    port = 61616 + port_offset

    def __init__(self, cache, scratch):
        self.binary = os.environ.get("POSTROAD_BINARY") or os.path.join(REPOSITORY, "target", "release", "postroad")
        super().__init__(cache, scratch)

    def install(self):
        if not os.access(self.binary, os.X_OK):
            raise RuntimeError(f"{self.binary} is missing: build it with `cargo build --release`, or set POSTROAD_BINARY")
        commit = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
        self.version = commit.stdout.strip()

    @property
    def load_generator(self):
        return os.path.join(os.path.dirname(self.binary), "postroad-bench")

    @property
    def configuration(self):
        return os.path.join(self.data, "postroad.toml")

    def prepare(self):
        if self.memory_bytes is not None:
            with open(self.configuration, "w", encoding="utf-8") as file:
                file.write(f"memory_bytes = {self.memory_bytes}\n")

    def command(self):
        command = [self.binary, "serve", "--data", os.path.join(self.data, "data"), "--port-offset", str(self.port_offset)]
        return command if self.memory_bytes is None else [*command, "--config", self.configuration]


class ActiveMQ(Broker):
    name = "activemq"
    version = "6.3.1"
    port = 61716
    # Not as it comes, but for those who ask for messages that are due later.
    scheduler = False

    def install(self):
        copy_jars(os.path.join(HERE, "peers", "activemq-pom.xml"), self.cache)

    def prepare(self):
        shutil.copy(os.path.join(HERE, "peers", "activemq.xml"), self.data)

    def command(self):
        return [
            "java",
            "-Xms64M",
            "-Xmx1G",
            f"-Djava.util.logging.config.file={os.path.join(HERE, 'peers', 'logging.properties')}",
            f"-Dactivemq.data={self.data}",
            f"-Dopenwire.port={self.port}",
            f"-Dactivemq.scheduler={str(self.scheduler).lower()}",
            "-cp",
            os.path.join(self.cache, "lib", "*"),
            "org.apache.activemq.console.command.ShellCommand",
            "start",
            f"xbean:file:{os.path.join(self.data, 'activemq.xml')}",
        ]


def any_disk(configuration):
    """Artemis would block producers while other files take nine tenths of the disk, without a word to them."""
    changed, count = re.subn(r"<max-disk-usage>\d+</max-disk-usage>", "<max-disk-usage>100</max-disk-usage>", configuration)
    if count != 1:
        raise RuntimeError(f"broker.xml has max-disk-usage {count} times, not once")
    return changed


class Artemis(Broker):
    name = "artemis"
    version = "2.56.0"
    port = 61816

    @property
    def home(self):
        return os.path.join(self.cache, f"apache-artemis-{self.version}")

    def install(self):
        if os.path.isdir(self.home):
            return
        os.makedirs(self.cache, exist_ok=True)
        maven(
            COPY_ARTIFACT,
            f"-Dartifact=org.apache.artemis:apache-artemis:{self.version}:tar.gz:bin",
            f"-DoutputDirectory={self.cache}",
            directory=self.cache,
        )
        unfinished = os.path.join(self.cache, "part")
        shutil.rmtree(unfinished, ignore_errors=True)
        with tarfile.open(self.home + "-bin.tar.gz") as archive:
            archive.extractall(unfinished)
        os.rename(os.path.join(unfinished, os.path.basename(self.home)), self.home)

    def prepare(self):
        self.create(self.data, self.port)

    def create(self, directory, port, options=()):
        """A directory of one, which listens at this port of the loopback interface alone."""
        create = [
            os.path.join(self.home, "bin", "artemis"), "create", directory, "--silent", "--force",
            "--name", "bench", "--user", "bench", "--password", "bench", "--allow-anonymous",
            "--host", "127.0.0.1", "--default-port", str(port), "--no-web",
            "--no-amqp-acceptor", "--no-hornetq-acceptor", "--no-mqtt-acceptor", "--no-stomp-acceptor", *options,
        ]  # fmt: skip
        done = subprocess.run(create, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"artemis create failed:\n{done.stdout}{done.stderr}")
        path = os.path.join(directory, "etc", "broker.xml")
        with open(path, encoding="utf-8") as file:
            configuration = file.read()
        acceptors = re.findall(r"<acceptor [^>]*>([^<]*)<", configuration)
        if not acceptors or any(f"127.0.0.1:{port}" not in acceptor for acceptor in acceptors):
            raise RuntimeError(f"artemis would listen elsewhere than on 127.0.0.1:{port}: {acceptors}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(any_disk(configuration))

    def command(self):
        return [os.path.join(self.data, "bin", "artemis"), "run"]


class PostroadAmqp(Postroad):
    name = "postroad-amqp"
    port = 5672 + Postroad.port_offset
    protocol = amqp
    scheme = "amqp"


class ArtemisAmqp(Artemis):
    """The same instance: its one acceptor speaks every protocol, and knows by the first bytes which."""

    name = "artemis-amqp"
    protocol = amqp
    scheme = "amqp"


class RabbitMQ(Broker):
    """The package of the system, with its AMQP 1.0 plug-in, on a node of its own: `apt install rabbitmq-server`."""

    name = "rabbitmq-amqp"
    port = 5972
    found_directory = True
    protocol = amqp
    scheme = "amqp"
    home = "/usr/lib/rabbitmq"

    def install(self):
        server = os.path.join(self.home, "bin", "rabbitmq-server")
        if not os.access(server, os.X_OK):
            raise RuntimeError("rabbitmq-server is not installed: apt install rabbitmq-server, or leave rabbitmq-amqp out")
        done = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server"], capture_output=True, text=True, check=False
        )
        self.version = done.stdout.strip()
        # Before version 4 the plug-in finds queues behind this, and makes those that are not there.
        self.queue_prefix = "/queue/" if int(self.version.split(".")[0]) < 4 else "/queues/"

    def prepare(self):
        with open(os.path.join(self.data, "enabled_plugins"), "w", encoding="utf-8") as file:
            file.write("[rabbitmq_amqp1_0].\n")
        with open(os.path.join(self.data, "rabbitmq.conf"), "w", encoding="utf-8") as file:
            file.write(f"listeners.tcp.local = 127.0.0.1:{self.port}\namqp1_0.default_user = guest\n")

    def environment(self):
        return {
            "RABBITMQ_NODENAME": "postroad-bench@localhost",
            "RABBITMQ_MNESIA_BASE": os.path.join(self.data, "mnesia"),
            "RABBITMQ_LOG_BASE": os.path.join(self.data, "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": os.path.join(self.data, "enabled_plugins"),
            "RABBITMQ_CONFIG_FILE": os.path.join(self.data, "rabbitmq"),
            "RABBITMQ_DIST_PORT": "25972",
            # Nothing of it listens elsewhere than on the loopback interface.
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "HOME": self.data,
        }

    def command(self):
        return [os.path.join(self.home, "bin", "rabbitmq-server")]

    def start(self):
        # Erlang's directory of nodes is a daemon: it goes with the node for whose sake it came.
        self.found_directory = subprocess.run(["epmd", "-names"], capture_output=True, check=False).returncode == 0
        super().start()

    def stop(self):
        was_running = self.process is not None
        super().stop()
        if was_running:
            self.end_directory()

    def end_directory(self):
        if not self.found_directory:
            subprocess.run(["epmd", "-kill"], capture_output=True, check=False)


# Those that `--brokers` defaults to: the same client, the same protocol.
OPENWIRE = [Postroad, ActiveMQ, Artemis]
AMQP = [PostroadAmqp, ArtemisAmqp, RabbitMQ]
ALL = {broker.name: broker for broker in OPENWIRE + AMQP}

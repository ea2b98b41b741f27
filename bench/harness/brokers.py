"""The brokers that are compared: how each is fetched, started on the loopback interface and stopped.

All keep messages on disk and confirm a durable send when it is there, as they come out of the box.
"""

import os
import re
import shutil
import subprocess
import tarfile
import time

from .openwire import await_answer
from .process import Process

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
REPOSITORY = os.path.dirname(HERE)
START_SECONDS_MAX = 120
COPY_ARTIFACT = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
COPY_JARS = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def maven(*arguments, directory=None):
    done = subprocess.run(["mvn", "-q", "-B", *arguments], cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"mvn {' '.join(arguments)} failed:\n{(done.stdout + done.stderr)[-3000:]}")


class Broker:
    """One broker; `start` leaves it serving on `port` from an empty directory."""

    name = ""
    version = ""
    port = 0

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
        log = os.path.join(os.path.dirname(self.data), f"{self.name}.log")
        self.process = Process(self.command(), self.data, log, self.environment())
        try:
            await_answer(self.port, START_SECONDS_MAX, lambda: self.process.require_alive(self.name))
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
        return f"tcp://127.0.0.1:{self.port}"


class Postroad(Broker):
    name = "postroad"
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

    def command(self):
        return [self.binary, "serve", "--data", os.path.join(self.data, "data"), "--port-offset", str(self.port_offset)]


class ActiveMQ(Broker):
    name = "activemq"
    version = "6.3.1"
    port = 61716
    # Not as it comes, but for those who ask for messages that are due later.
    scheduler = False

    def install(self):
        jars = os.path.join(self.cache, "lib")
        if not os.path.isdir(jars):
            unfinished = jars + ".part"
            pom = os.path.join(HERE, "peers", "activemq-pom.xml")
            maven("-f", pom, COPY_JARS, "-DincludeScope=runtime", f"-DoutputDirectory={unfinished}")
            os.rename(unfinished, jars)

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
        create = [
            os.path.join(self.home, "bin", "artemis"), "create", self.data, "--silent", "--force",
            "--name", "bench", "--user", "bench", "--password", "bench", "--allow-anonymous",
            "--host", "127.0.0.1", "--default-port", str(self.port), "--no-web",
            "--no-amqp-acceptor", "--no-hornetq-acceptor", "--no-mqtt-acceptor", "--no-stomp-acceptor",
        ]  # fmt: skip
        done = subprocess.run(create, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"artemis create failed:\n{done.stdout}{done.stderr}")
        with open(os.path.join(self.data, "etc", "broker.xml"), encoding="utf-8") as file:
            acceptors = re.findall(r"<acceptor [^>]*>([^<]*)<", file.read())
        if not acceptors or any(f"127.0.0.1:{self.port}" not in acceptor for acceptor in acceptors):
            raise RuntimeError(f"artemis would listen elsewhere than on 127.0.0.1:{self.port}: {acceptors}")

    def command(self):
        return [os.path.join(self.data, "bin", "artemis"), "run"]


ALL = {broker.name: broker for broker in (Postroad, ActiveMQ, Artemis)}

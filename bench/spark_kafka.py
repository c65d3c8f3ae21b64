"""The peer of ``bench.spark``: a Kafka server, and the PySpark that its connector is made for.

What is fetched for it is kept in the cache of the interop kit. Where it cannot be had, the reason
is said and the peer's rows are left out.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.interop import maven, requirements
from tests.interop.cache import Cache
from tests.interop.commands import run, tail
from tests.interop.ports import LOOPBACK, free_port
from tests.interop.processes import Process, Stoppable

SERVER, CONNECTOR = "kafka-4.1.0", "spark-kafka-4.1.1"
PACKAGES = Path(__file__).parent / "spark_peer.txt"
INSTALL_TIMEOUT_S = 600
FORMAT_TIMEOUT_S = 60
START_TIMEOUT_S = 60.0
READY = "Kafka Server started"
CLUSTER_ID = "Y29tZXRtcS1iZW5jaC1wZQ"  # any 16 bytes, in base 64 for addresses
# As Kafka's own start script has them, but for the memory that is never given back.
JVM = ("-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")

TUNED: Mapping[str, str] = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(16 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.receive.buffer.bytes": str(4 << 20),
}
"""Options of the connector that make large reads from few queues faster."""


def packages(cache: Cache) -> Path:
    """A folder for ``PYTHONPATH`` with the PySpark of the connector's release."""

    def install(folder: Path) -> None:
        options = ["--quiet", "--no-deps", "--no-build-isolation", "--require-hashes"]
        where = ["--target", str(folder), "-r", str(PACKAGES)]
        run([sys.executable, "-m", "pip", "install", *options, *where], timeout_s=INSTALL_TIMEOUT_S)

    with requirements.fetching("PySpark 4.1.1 for Spark's Kafka connector"):
        return cache.entry("spark-peer", {"requirements": PACKAGES.read_text()}, install)


def environment(cache: Cache) -> dict[str, str]:
    """What a driver of ``bench.spark_driver`` must be given to use the connector."""
    from bench.spark_driver import CLASS_PATH

    requirements.need("java")
    root = str(Path(__file__).parents[1])
    return {
        "PYTHONPATH": f"{packages(cache)}:{root}",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(packages(cache) / "pyspark"),
        "SPARK_LOCAL_IP": LOOPBACK,
        CLASS_PATH: maven.class_path(cache, CONNECTOR),
    }


class Kafka(Stoppable):
    """A server that is broker and controller in one, on loopback."""

    def __init__(self, cache: Cache, folder: Path) -> None:
        requirements.need("java")
        jars = maven.class_path(cache, SERVER)
        port, controller_port = free_port(), free_port()
        self.address = f"{LOOPBACK}:{port}"
        folder.mkdir(parents=True)
        conf = folder / "server.properties"
        settings = settings_of(folder / "data", port, controller_port)
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        java = ["java", *JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "-cp", jars]
        format_ = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(conf)]
        run([*java, *format_], timeout_s=FORMAT_TIMEOUT_S, cwd=folder)
        self.process = Process("kafka", [*java, "kafka.Kafka", str(conf)], folder=folder)
        try:
            self.process.wait_until_printed(READY, timeout_s=START_TIMEOUT_S)
        except BaseException:
            self.process.kill()
            raise

    @property
    def pid(self) -> int:
        return self.process.pid

    def last_words(self) -> str:
        return tail(self.process.log())

    def stop(self) -> None:
        # A polite stop saves a log nobody will open.
        self.process.kill()


def settings_of(data: Path, port: int, controller_port: int) -> dict[str, str]:
    """Kafka's defaults, as far as one server on loopback allows them."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }

"""Jars from Maven: named sets of artifacts with everything they depend on, in the cache."""

from collections.abc import Mapping
from pathlib import Path

from tests.interop import requirements
from tests.interop.cache import Cache
from tests.interop.commands import run

RESOLVE_TIMEOUT_S = 420

# The releases of these sets do not mix: each is one class path. There is no 4.9.8 of the servers.
SETS: Mapping[str, tuple[str, ...]] = {
    "servers-4.9.7": ("rocketmq-broker:4.9.7", "rocketmq-namesrv:4.9.7", "rocketmq-tools:4.9.7"),
    # The last release with filter servers.
    "servers-4.2.0": (
        "rocketmq-broker:4.2.0",
        "rocketmq-namesrv:4.2.0",
        "rocketmq-filtersrv:4.2.0",
    ),
    "servers-5.5.0": ("rocketmq-broker:5.5.0", "rocketmq-namesrv:5.5.0", "rocketmq-tools:5.5.0"),
    "client-4.9.8": ("rocketmq-client:4.9.8", "rocketmq-tools:4.9.8", "rocketmq-acl:4.9.8"),
    "client-5.5.0": ("rocketmq-client:5.5.0", "rocketmq-tools:5.5.0"),
    "bench-5.5.0": ("rocketmq-example:5.5.0",),
}

# What only benchmarks put beside ours. Spark brings the rest of what its connector needs; tokens
# are not used, and of the module for them older releases are easier to find.
PEERS: Mapping[str, tuple[str, ...]] = {
    "kafka-4.1.0": ("org.apache.kafka:kafka_2.13:4.1.0", "org.slf4j:slf4j-simple:1.7.36:alone"),
    "spark-kafka-4.1.1": (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1:alone",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0:alone",
        "org.apache.kafka:kafka-clients:3.9.1:alone",
        "org.apache.commons:commons-pool2:2.12.1:alone",
    ),
}

# A native library that 4.2 names by machine and does without.
CLASSIFIER = "-Dos.detected.classifier=linux-x86_64"

GROUP = "org.apache.rocketmq"

POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>cometmq.interop</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
DEPENDENCY = """\
    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>{exclusions}
    </dependency>"""
EXCLUSIONS = """
      <exclusions>
        <exclusion>
          <groupId>*</groupId>
          <artifactId>*</artifactId>
        </exclusion>
      </exclusions>"""


def class_path(cache: Cache, name: str) -> str:
    """A Java class path with every jar of the set ``name``."""
    return f"{jars(cache, name)}/*"


def jars(cache: Cache, name: str) -> Path:
    """The folder with the jars of the set ``name``, resolved now if this machine lacks them."""
    pom = pom_of(SETS[name] if name in SETS else PEERS[name])

    def resolve(folder: Path) -> None:
        requirements.need("mvn")
        (folder / "pom.xml").write_text(pom)
        goal = ["dependency:copy-dependencies", "-DoutputDirectory=lib"]
        run(["mvn", "-q", "-B", CLASSIFIER, *goal], cwd=folder, timeout_s=RESOLVE_TIMEOUT_S)

    with requirements.fetching(f"the jars of {name}"):
        return cache.entry(f"jars-{name}", {"pom": pom}, resolve) / "lib"


def pom_of(artifacts: tuple[str, ...]) -> str:
    """The project description that depends on ``artifacts``.

    Each is ``[group:]name:version``, of RocketMQ's group unless it names one; with ``:alone`` at
    the end nothing that it depends on comes with it.
    """
    return POM.format(dependencies="\n".join(map(_dependency, artifacts)))


def _dependency(text: str) -> str:
    artifact = text.removesuffix(":alone")
    group, name, version = [GROUP, *artifact.split(":")][-3:]
    exclusions = EXCLUSIONS if text != artifact else ""
    return DEPENDENCY.format(group=group, artifact=name, version=version, exclusions=exclusions)

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
    "servers-5.5.0": ("rocketmq-broker:5.5.0", "rocketmq-namesrv:5.5.0", "rocketmq-tools:5.5.0"),
    "client-4.9.8": ("rocketmq-client:4.9.8", "rocketmq-tools:4.9.8", "rocketmq-acl:4.9.8"),
    "client-5.5.0": ("rocketmq-client:5.5.0", "rocketmq-tools:5.5.0"),
    "bench-5.5.0": ("rocketmq-example:5.5.0",),
}

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
      <groupId>org.apache.rocketmq</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
    </dependency>"""


def class_path(cache: Cache, name: str) -> str:
    """A Java class path with every jar of the set ``name``."""
    return f"{jars(cache, name)}/*"


def jars(cache: Cache, name: str) -> Path:
    """The folder with the jars of the set ``name``, resolved now if this machine lacks them."""
    pom = pom_of(SETS[name])

    def resolve(folder: Path) -> None:
        requirements.need("mvn")
        (folder / "pom.xml").write_text(pom)
        goal = ["dependency:copy-dependencies", "-DoutputDirectory=lib"]
        run(["mvn", "-q", "-B", *goal], cwd=folder, timeout_s=RESOLVE_TIMEOUT_S)

    with requirements.fetching(f"the jars of {name}"):
        return cache.entry(f"jars-{name}", {"pom": pom}, resolve) / "lib"


def pom_of(artifacts: tuple[str, ...]) -> str:
    """The project description that depends on ``artifacts`` (``name:version``)."""
    pairs = (artifact.split(":") for artifact in artifacts)
    dependencies = [DEPENDENCY.format(artifact=name, version=version) for name, version in pairs]
    return POM.format(dependencies="\n".join(dependencies))

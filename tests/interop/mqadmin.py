"""Apache's admin tool, one command at a time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop import apache, java, maven, requirements
from tests.interop.cache import Cache
from tests.interop.commands import run, without_noise

MAIN = "org.apache.rocketmq.tools.command.MQAdminStartup"
COMMAND_TIMEOUT_S = 60
VERSIONS = ("4.9.8", "5.5.0")


@dataclass(frozen=True, slots=True)
class MqAdmin:
    """The tool of one release. Callers see ``admin(*argv) -> text`` and nothing of the JVM.

    Each call starts one; ``AdminShell`` keeps one for many commands and can take this one's place.
    """

    cache: Cache
    version: str
    folder: Path
    properties: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *argv: str) -> str:
        """What the command printed, without the noise around it; a failed command raises."""
        requirements.need("java")
        home = apache.home(self.folder)
        class_path = maven.class_path(self.cache, f"client-{self.version}")
        properties = {"rocketmq.home.dir": str(home), **self.properties}
        command = java.command(class_path, MAIN, argv, home=home, properties=properties)
        return without_noise(run(command, timeout_s=COMMAND_TIMEOUT_S))

    def create_topic(self, namesrv: str, topic: str, *, queues: int = 4) -> None:
        """Make ``topic`` known on every broker of the cluster."""
        where = ["-n", namesrv, "-c", apache.CLUSTER, "-t", topic]
        answer = self("updateTopic", *where, "-r", str(queues), "-w", str(queues))
        assert "success" in answer, answer

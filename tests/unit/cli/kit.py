"""Commands on a cluster in the test's own process."""

from collections.abc import Callable

from click.testing import CliRunner, Result

from cometmq.cli.app import app
from cometmq.testing.local_cluster import BlockingCluster

Run = Callable[..., Result]


def runner(cluster: BlockingCluster) -> Run:
    """Runs commands on a cluster, with nothing else in the environment that says where to go."""

    def run(*arguments: str) -> Result:
        environment = {"NAMESRV_ADDR": cluster.namesrv, "COMETMQ_CONTEXT": ""}
        return CliRunner().invoke(app, arguments, env=environment)

    return run

"""The same job on a standalone cluster: only the master is another one."""

import json
import re
import sys
from pathlib import Path

from scripts import tree
from tests.interop.processes import Process
from tests.spark import cluster, relay
from tests.spark.servers import Servers

JOB_SECONDS_MAX = 200
QUEUES = 4


def test_a_batch_and_a_stream_run_unchanged_on_a_cluster(
    servers: Servers, spark_environment: dict[str, str], topic: str, tmp_path: Path
) -> None:
    """Executors are other processes without this package, which the session sends to them."""
    source, target = f"{topic}_a", f"{topic}_b"
    for name in (source, target):
        servers.create_topic(name, queues=QUEUES)
    relay.fill(servers.namesrv, source, servers.broker.name, queues=QUEUES, count=1_000)
    root = str(tree.ROOT)
    env = {**spark_environment, "PYTHONPATH": f"{root}/src:{root}", "SPARK_LOCAL_IP": "127.0.0.1"}

    with cluster.standalone(tmp_path, spark_environment) as master:
        arguments = (master, servers.namesrv, source, target, tmp_path / "checkpoint")
        argv = [sys.executable, "-m", "tests.spark.cluster_job", *map(str, arguments)]
        with Process("driver", argv, folder=tmp_path, env=env) as driver:
            driver.wait_until_printed(r"found \{.*\}\n", timeout_s=JOB_SECONDS_MAX)
            said = re.search(r"found (\{.*\})\n", driver.log())

    assert said is not None
    found = json.loads(said[1])
    assert len(found["executors"]) == cluster.WORKERS
    assert all("cometmq-package.zip" in place for place in found["packages"])
    assert found["bodies"] == sorted(f"{q}-{n}" for q in range(QUEUES) for n in range(1_000))
    assert relay.claim_exactly_once(servers.namesrv, source, target) == QUEUES * 1_000

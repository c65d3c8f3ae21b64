"""Apache's admin tool sees in our name server, field by field, what it sees in Apache's own.

One Apache broker is registered with both, so whatever is not listed here as different is equal.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cometmq.codec import java_properties
from tests.interop import asking, mqadmin_fields
from tests.interop.admin_shell import AdminShell
from tests.interop.fleet import Fleet, Twins
from tests.interop.mqadmin_fields import AdminFailure, ConfigUpdate, PermissionChange, Row

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

TOOLS = {"4.9.7": "4.9.8", "5.5.0": "5.5.0"}

# Columns of clusterList that the broker measures: they change from one command to the next.
MEASURED = {
    *("InTPS(LOAD)", "OutTPS(LOAD)", "Timer(Progress)", "PCWait(ms)", "Hour", "SPACE"),
    *("InTotalYest", "OutTotalYest", "InTotalToday", "OutTotalToday"),
}

# Settings whose value differs from Apache's on purpose.
DIFFERENT = {
    "bindAddress": "the kit lets ours listen on loopback only",
    "configStorePath": "each server has its own file",
    "kvConfigPath": "each server has its own file",
    "listenPort": "each server has its own port",
    "rocketmqHome": "ours does not need one",
    "scanNotActiveBrokerInterval": "ten seconds, as 4.9 has it, for brokers of both releases",
    "shutdownWaitTimeSeconds": "ours always drains, so it must not take half a minute",
    "writeBufferHighWaterMark": "ours always has a bound, Apache's has none by default",
}

# Settings that Apache's name server does not have at all, or not as settings of its file.
OURS_ALONE = {
    "com.rocketmq.remoting.frameMaxLength": "a JVM property there",
    "frameSecondsMax": "a frame that trickles in for ever is an attack",
    "healthAddress": "where to ask how it is and what it counts",
    "healthPort": "where to ask how it is and what it counts",
    "isVipEnabled": "the port two below",
    "partialFramesBytesMax": "one budget for all unfinished frames",
    "stalledSecondsMax": "a reader that stops reading is dropped",
    "tls.server.certPath": "a JVM property there",
    "tls.server.keyPath": "a JVM property there",
    "tls.server.mode": "a JVM property there",
    "tls.server.need.client.auth": "a JVM property there",
    "tls.server.trustCertPath": "a JVM property there",
    "writeBufferBytesMax": "what one connection may have unsent",
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The tool of one release, and the two name servers of that release's broker."""

    admin: AdminShell
    twins: Twins

    @property
    def namesrvs(self) -> tuple[str, str]:
        return self.twins.namesrvs

    def __call__(self, command: str, *argv: str) -> tuple[str, str]:
        """What the command prints when asked of ours, and when asked of Apache's."""
        ours, apaches = self.namesrvs
        return self.admin(command, "-n", ours, *argv), self.admin(command, "-n", apaches, *argv)

    def refusals(self, command: str, *argv: str) -> list[AdminFailure]:
        """How ours and Apache's refuse the command; it is a failure here if one does not."""
        found = [mqadmin_fields.failure(text) for text in self(command, *argv)]
        refused = [failure for failure in found if failure is not None]
        assert len(refused) == 2, found
        return refused


@pytest.fixture(params=TOOLS)
def compare(
    request: pytest.FixtureRequest,
    apache_fleet: Fleet,
    admin_shell: Callable[[str], AdminShell],
) -> Comparison:
    """Ours and Apache's at a moment when both know the same topics."""
    comparison = Comparison(admin_shell(TOOLS[request.param]), apache_fleet.twins[request.param])
    comparison.twins.wait_until_alike()
    return comparison


@pytest.fixture
def known_topic(compare: Comparison, topic: str) -> str:
    """A topic that both name servers know."""
    asking.create_topic(compare.twins.broker.address, topic, queues=3)
    asking.wait_until_known(compare.namesrvs, topic)
    return topic


@pytest.mark.parametrize("options", [(), ("-m",)], ids=["plain", "totals"])
def test_cluster_list(compare: Comparison, options: tuple[str, ...]) -> None:
    ours, apaches = map(mqadmin_fields.table, compare("clusterList", *options))

    (row,) = ours
    assert row["Broker Name"] == compare.twins.broker.name
    assert row.keys() & MEASURED
    assert [not_measured(row) for row in ours] == [not_measured(row) for row in apaches]


def not_measured(row: Row) -> Row:
    return {name: cell for name, cell in row.items() if name not in MEASURED}


def test_topic_list(compare: Comparison, known_topic: str) -> None:
    ours, apaches = map(mqadmin_fields.lines, compare("topicList"))

    assert ours == apaches
    assert {known_topic, "TBW102"} <= set(ours)


def test_topic_list_of_clusters(compare: Comparison, known_topic: str) -> None:
    ours, apaches = (
        sorted(mqadmin_fields.table(text), key=lambda row: tuple(row.values()))
        for text in compare("topicList", "-c")
    )

    assert ours == apaches
    assert known_topic in [row["Topic"] for row in ours]


def test_topic_route(compare: Comparison, known_topic: str) -> None:
    ours, apaches = map(mqadmin_fields.route, compare("topicRoute", "-t", known_topic))

    assert ours == apaches
    (queues,) = ours["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (3, 3, 6)


def test_topic_route_of_an_unknown_topic(compare: Comparison) -> None:
    """Ours says what Apache's says, and then what may help."""
    ours, apaches = compare.refusals("topicRoute", "-t", "NoSuchTopic")

    assert ours.code == apaches.code == 17
    assert ours.description.startswith(apaches.description)
    assert apaches.description.endswith("for the topic: NoSuchTopic")


def test_topic_cluster_list(compare: Comparison, known_topic: str) -> None:
    ours, apaches = map(mqadmin_fields.lines, compare("topicClusterList", "-t", known_topic))

    assert ours == apaches == ["DefaultCluster"]


def test_kv_config(compare: Comparison) -> None:
    name = ("-s", "NAMESPACE", "-k", "key one")

    ours, apaches = map(
        mqadmin_fields.sentences, compare("updateKvConfig", *name, "-v", "välue; 1=2")
    )

    assert ours == apaches == ["create or update kv config to namespace success."]
    kept = [asking.kv(namesrv, "NAMESPACE", "key one") for namesrv in compare.namesrvs]
    assert kept == ["välue; 1=2"] * 2
    ours_file, apaches_file = kv_files(compare)
    assert ours_file == apaches_file
    assert ours_file["configTable"]["NAMESPACE"] == {"key one": "välue; 1=2"}

    ours, apaches = map(mqadmin_fields.sentences, compare("deleteKvConfig", *name))

    assert ours == apaches == ["delete kv config from namespace success."]
    kept = [asking.kv(namesrv, "NAMESPACE", "key one") for namesrv in compare.namesrvs]
    assert kept == [None, None]
    ours_file, apaches_file = kv_files(compare)
    assert ours_file == apaches_file


def kv_files(compare: Comparison) -> list[dict[str, dict[str, dict[str, str]]]]:
    """The files of ours and of Apache's as they are on disk now."""
    paths = (compare.twins.ours.kv_config_path, compare.twins.apaches.kv_config_path)
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def test_order_configuration(compare: Comparison, known_topic: str) -> None:
    wanted = f"{compare.twins.broker.name}:3"

    for method, *more in (("put", "-v", wanted), ("get",), ("delete",)):
        argv = ("-t", known_topic, "-m", method, *more)
        ours, apaches = map(mqadmin_fields.sentences, compare("updateOrderConf", *argv))

        assert ours == apaches
        assert ours[0].startswith(f"{method.replace('put', 'update')} orderConf success")
        assert (wanted in ours[0]) == (method != "delete")


def test_write_permission_taken_and_given(compare: Comparison, known_topic: str) -> None:
    name = compare.twins.broker.name
    count = len(asking.topics(compare.twins.ours.address))

    for action, perm in (("wipe", 4), ("add", 6)):
        changes = map(mqadmin_fields.permission_change, compare(f"{action}WritePerm", "-b", name))

        assert list(changes) == [
            PermissionChange(action, name, namesrv, count) for namesrv in compare.namesrvs
        ]
        # All of them, also those that had other permissions before, such as TBW102.
        ours, apaches = compare.twins.routes()
        assert ours == apaches
        assert ours[known_topic]["queueDatas"][0]["perm"] == perm


def test_write_permission_of_an_unknown_broker(compare: Comparison) -> None:
    ours, apaches = map(mqadmin_fields.permission_change, compare("wipeWritePerm", "-b", "nobody"))

    assert (ours.topics, ours.broker) == (apaches.topics, apaches.broker) == (0, "nobody")


def test_get_namesrv_config(compare: Comparison, apache_fleet: Fleet) -> None:
    """Every key of Apache's is there with its value; ours has those of both releases and more."""
    ours, apaches = (
        mqadmin_fields.namesrv_configs(text)[namesrv]
        for text, namesrv in zip(compare("getNamesrvConfig"), compare.namesrvs, strict=True)
    )

    same = apaches.keys() - DIFFERENT.keys()
    assert {key: ours[key] for key in same} == {key: apaches[key] for key in same}
    assert all(ours[key] != apaches[key] for key in DIFFERENT.keys() & apaches.keys())
    assert ours["listenPort"] == str(compare.twins.ours.port)
    assert ours["kvConfigPath"] == str(compare.twins.ours.kv_config_path)
    of_both_releases = {
        key
        for twins in apache_fleet.twins.values()
        for key in asking.settings(twins.apaches.address)
    }
    assert ours.keys() - of_both_releases == OURS_ALONE.keys()
    assert of_both_releases - ours.keys() == set()


@pytest.mark.parametrize(
    ("key", "value"), [("productEnvName", "test"), ("serverWorkerThreads", "9"), ("noSuchKey", "1")]
)
def test_update_namesrv_config(compare: Comparison, key: str, value: str) -> None:
    """Also a key without effect in ours; one nobody knows is a success in both, and ignored."""
    was = [asking.settings(namesrv).get(key) for namesrv in compare.namesrvs]

    texts = compare("updateNamesrvConfig", "-k", key, "-v", value)

    updates = [mqadmin_fields.config_update(text) for text in texts]
    assert updates == [ConfigUpdate((namesrv,), key, value) for namesrv in compare.namesrvs]
    ours, apaches = map(asking.settings, compare.namesrvs)
    assert ours.get(key) == apaches.get(key) == (None if key == "noSuchKey" else value)
    stored = [
        java_properties.loads(Path(settings["configStorePath"]).read_bytes()).get(key)
        for settings in (ours, apaches)
    ]
    assert stored == [ours.get(key)] * 2
    for namesrv, value_before in zip(compare.namesrvs, was, strict=True):
        if value_before is not None:
            asking.change_setting(namesrv, key, value_before)


@pytest.mark.parametrize("key", ["kvConfigPath", "configStorePath"])
def test_where_files_are_cannot_be_changed(compare: Comparison, key: str) -> None:
    """4.9 has fewer words for it; ours has those of 5.x for everybody."""
    ours, apaches = compare.refusals("updateNamesrvConfig", "-k", key, "-v", "/tmp/elsewhere")

    assert ours.code == apaches.code == 16
    assert apaches.description in (ours.description, "Can not update config path")
    assert asking.settings(compare.namesrvs[0])[key] != "/tmp/elsewhere"


def test_delete_topic(compare: Comparison, known_topic: str) -> None:
    """The broker is found through the name server asked; the topic is gone there and here."""
    broker = compare.twins.broker
    second = f"{known_topic}_2"
    asking.create_topic(broker.address, second)
    asking.wait_until_known(compare.namesrvs, second)
    where = ("-c", "DefaultCluster")

    for namesrv, topic in zip(compare.namesrvs, (known_topic, second), strict=True):
        said = mqadmin_fields.sentences(
            compare.admin("deleteTopic", "-n", namesrv, *where, "-t", topic)
        )

        assert said == [
            f"delete topic [{topic}] from cluster [DefaultCluster] success.",
            f"delete topic [{topic}] from NameServer success.",
        ]
        assert asking.route(namesrv, topic) is None
        assert topic not in asking.topics(namesrv)
    # Each name server was told of one: the other topic is gone as well once both know of both.
    for topic in (known_topic, second):
        compare("deleteTopic", *where, "-t", topic)
    ours, apaches = (asking.topics(namesrv) for namesrv in compare.namesrvs)
    assert ours == apaches
    assert not ours & {known_topic, second}

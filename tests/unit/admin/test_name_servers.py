import pytest

from cometmq.codec import java_properties
from cometmq.codec.bodies.nameserver import KVTable
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.nameserver import (
    AddWritePermOfBrokerResponse,
    GetKVConfigResponse,
    WipeWritePermOfBrokerResponse,
)
from cometmq.errors import NotFound, PartlyDone, Unreachable
from cometmq.remoting.routes import Answer
from tests.unit.admin.fake_cluster import NAMESRV, OTHER_NAMESRV, FakeCluster, body, refused


async def test_settings_are_read_from_every_name_server_or_from_one() -> None:
    cluster = FakeCluster()
    cluster.on(RequestCode.GET_NAMESRV_CONFIG, Answer(body=b"b=2\na=1\n"))
    admin = cluster.admin

    everywhere = await admin.name_servers.config()
    one = await admin.name_servers.config(OTHER_NAMESRV)

    assert [config.address for config in everywhere] == [NAMESRV, OTHER_NAMESRV]
    assert list(everywhere[0].values.items()) == [("a", "1"), ("b", "2")]
    assert [config.address for config in one] == [OTHER_NAMESRV]


async def test_a_setting_is_changed_on_every_name_server() -> None:
    cluster = FakeCluster()
    cluster.on(RequestCode.UPDATE_NAMESRV_CONFIG, Answer())

    await cluster.admin.name_servers.set_config({"clusterTest": "true"})

    asked = cluster.questions(RequestCode.UPDATE_NAMESRV_CONFIG)
    assert [one.address for one in asked] == [NAMESRV, OTHER_NAMESRV]
    assert java_properties.loads(asked[0].body) == {"clusterTest": "true"}


async def test_values_are_written_everywhere_and_read_anywhere() -> None:
    cluster = FakeCluster()
    cluster.on(RequestCode.PUT_KV_CONFIG, Answer())
    cluster.on(RequestCode.GET_KV_CONFIG, Answer(header=GetKVConfigResponse("v")))
    cluster.on(RequestCode.GET_KVLIST_BY_NAMESPACE, body(KVTable({"k": "v"})))
    admin = cluster.admin

    await admin.name_servers.set_value("N", "k", "v")

    assert len(cluster.questions(RequestCode.PUT_KV_CONFIG)) == 2
    assert await admin.name_servers.value("N", "k") == "v"
    assert await admin.name_servers.values("N") == {"k": "v"}


async def test_a_value_that_is_not_there_is_not_found() -> None:
    cluster = FakeCluster()
    cluster.on(RequestCode.GET_KV_CONFIG, refused(ResponseCode.QUERY_NOT_FOUND))
    cluster.on(RequestCode.GET_KVLIST_BY_NAMESPACE, refused(ResponseCode.QUERY_NOT_FOUND))
    admin = cluster.admin

    assert await admin.name_servers.find_value("N", "k") is None
    assert await admin.name_servers.values("N") == {}
    with pytest.raises(NotFound, match="no such value: 'N/k'"):
        await admin.name_servers.value("N", "k")


async def test_a_value_that_one_name_server_did_not_take_is_partly_done() -> None:
    """Name servers do not talk to each other: clients of the other one would see the old value."""
    cluster = FakeCluster()
    cluster.on(RequestCode.DELETE_KV_CONFIG, Answer(), at=NAMESRV)
    cluster.on(RequestCode.DELETE_KV_CONFIG, Unreachable("x", "refused"), at=OTHER_NAMESRV)

    with pytest.raises(PartlyDone, match=f"deleting N/k was done by {NAMESRV} but not by"):
        await cluster.admin.name_servers.delete_value("N", "k")


async def test_permission_to_write_is_taken_and_given_back() -> None:
    cluster = FakeCluster()
    wiped, added = WipeWritePermOfBrokerResponse(7), AddWritePermOfBrokerResponse(8)
    cluster.on(RequestCode.WIPE_WRITE_PERM_OF_BROKER, Answer(header=wiped))
    cluster.on(RequestCode.ADD_WRITE_PERM_OF_BROKER, Answer(header=added))
    admin = cluster.admin

    taken = await admin.name_servers.wipe_write_permission("broker-a")
    given = await admin.name_servers.add_write_permission("broker-a")

    assert [(one.name_server, one.topic_count) for one in taken] == [
        (NAMESRV, 7),
        (OTHER_NAMESRV, 7),
    ]
    assert {one.topic_count for one in given} == {8}

"""Administrators ask who is connected."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.broker.handlers.connections import ConflictingConnection, SubscriptionConflict
from cometmq.codec import fastjson
from cometmq.codec.bodies.clients import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from cometmq.codec.codes import LanguageCode, RequestCode, ResponseCode
from cometmq.codec.headers.clients import GetConsumerConnectionList, GetProducerConnectionList
from tests.golden.wire_frames import frames
from tests.unit.broker.client_kit import consuming, producing
from tests.unit.broker.fake_channel import FakeChannel
from tests.unit.broker.services_kit import Services, opened
from tests.unit.broker.tables import recorded_requests

CONSUMERS = RequestCode.GET_CONSUMER_CONNECTION_LIST
PRODUCERS = RequestCode.GET_PRODUCER_CONNECTION_LIST


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    yield from opened(tmp_path)


def test_the_members_of_a_group_are_told_with_what_it_wants(services: Services) -> None:
    services.beat(consuming("c1", "G", {"T": "red"}), FakeChannel("10.0.0.1:1"))
    go = FakeChannel("10.0.0.2:2")
    services.beat(consuming("c2", "G", {"T": "red"}), go, language=LanguageCode.GO, version=317)

    found = services.told(ConsumerConnection, CONSUMERS, GetConsumerConnectionList("G"))

    assert found.connection_set == (
        Connection("c1", "10.0.0.1:1", "JAVA", 513),
        Connection("c2", "10.0.0.2:2", "GO", 317),
    )
    assert found.subscription_table["T"].sub_string == "red"


def test_a_group_is_told_with_the_members_that_apache_writes(services: Services) -> None:
    recorded = next(
        frame.body
        for frame in frames("mqadmin-5.5.0")
        if frame.request_code == CONSUMERS and frame.code == ResponseCode.SUCCESS
    )
    services.beat(consuming("10.0.0.5@bgc", "GID_bg", {"Wire": "*", "%RETRY%GID_bg": "*"}))

    reply = services.ask(CONSUMERS, GetConsumerConnectionList("GID_bg"))

    ours, apaches = fastjson.loads(reply.body), fastjson.loads(recorded)
    assert ours.keys() == apaches.keys()
    assert ours["connectionSet"][0].keys() == apaches["connectionSet"][0].keys()
    assert ours["subscriptionTable"]["Wire"].keys() == apaches["subscriptionTable"]["Wire"].keys()


def test_a_group_without_members_is_not_online(services: Services) -> None:
    services.groups.obtain("G")

    reply = services.ask(CONSUMERS, GetConsumerConnectionList("G"))

    assert reply.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert reply.remark == "the consumer group[G] not online"


def test_members_that_disagree_are_told(services: Services) -> None:
    services.beat(consuming("c1", "G", {"T": "red"}))
    services.beat(consuming("c2", "G", {"T": "blue"}))

    found = services.told(ConflictingConnection, CONSUMERS, GetConsumerConnectionList("G"))

    assert found.conflicts == (SubscriptionConflict("T", "c2", "'blue'", "c1", "'red'"),)


def test_nothing_is_said_of_conflicts_where_there_are_none(services: Services) -> None:
    services.beat(consuming("c1", "G", {"T": "red"}))

    reply = services.ask(CONSUMERS, GetConsumerConnectionList("G"))

    assert b"conflicts" not in reply.body


def test_the_members_of_a_producer_group_are_told(services: Services) -> None:
    services.beat(producing("p1", "P"), FakeChannel("10.0.0.1:1"), language=99)

    found = services.told(ProducerConnection, PRODUCERS, GetProducerConnectionList("P"))

    assert found.connection_set == (Connection("p1", "10.0.0.1:1", "OTHER", 513),)


def test_a_producer_group_without_members_does_not_exist(services: Services) -> None:
    reply = services.ask(PRODUCERS, GetProducerConnectionList("P"))

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark == "the producer group[P] not exist"


def test_all_producers_are_told_with_the_time_of_their_last_heartbeat(services: Services) -> None:
    services.beat(producing("p1", "P", "Q"), FakeChannel("10.0.0.1:1"))
    seen_ms = services.clock.now_ms()
    services.clock.advance(20.0)

    found = services.told(ProducerTable, RequestCode.GET_ALL_PRODUCER_INFO)

    assert found.data.keys() == {"P", "Q"}
    (producer,) = found.data["P"]
    assert producer == ProducerInfo("p1", "/10.0.0.1:1", "JAVA", 513, seen_ms)


@pytest.mark.parametrize("code", [203, 204, 328], ids=lambda code: RequestCode(code).name)
def test_recorded_requests_are_understood(services: Services, code: int) -> None:
    services.beat(consuming("c1", "GID_bg"))
    services.beat(producing("p1", "PG_bg"))
    requests = recorded_requests(RequestCode(code))

    codes = {services.put_through(command).code for command in requests}

    assert requests
    assert ResponseCode.SUCCESS in codes
    assert codes <= {
        ResponseCode.SUCCESS,
        ResponseCode.CONSUMER_NOT_ONLINE,
        ResponseCode.SYSTEM_ERROR,
    }

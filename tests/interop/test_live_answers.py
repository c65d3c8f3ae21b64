"""Our codecs talk to Apache's live servers: what we write they accept, what they say we read."""

import time
from collections.abc import Callable

import pytest

from cometmq.codec import command, fastjson, properties, record
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command, Serialization
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.nameserver import GetRouteInfoByTopic
from cometmq.codec.headers.pull import PullMessage, PullMessageResponse
from cometmq.codec.headers.send import SendMessageResponse, SendMessageV2
from cometmq.codec.message_id import decode_offset_id
from cometmq.model.route import TopicRoute
from tests.interop import raw
from tests.interop.apache import REGISTERED_TIMEOUT_S, VERSIONS, ApacheCluster
from tests.interop.ports import LOOPBACK

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]

BORN = 1_700_000_000_000
BODY = "héllo 😀".encode()
PROPERTIES = {"KEYS": "k1", "TAGS": "TagA", "city": "東京"}
WITH_SUBSCRIPTION = 0x4


@pytest.fixture(params=VERSIONS)
def cluster(
    request: pytest.FixtureRequest, apache_cluster: Callable[[str], ApacheCluster]
) -> ApacheCluster:
    return apache_cluster(request.param)


@pytest.fixture(params=list(Serialization), ids=lambda kind: kind.name)
def serialization(request: pytest.FixtureRequest) -> Serialization:
    chosen: Serialization = request.param
    return chosen


def ask(
    address: str,
    code: RequestCode,
    header: Header,
    serialization: Serialization,
    body: bytes = b"",
) -> Command:
    """One request on a connection of its own, and the answer to it."""
    opaque = -7
    question = command.request(code, header, opaque=opaque, serialization=serialization, body=body)
    with raw.connect(address) as connection:
        frame = connection.exchange(command.encode(question))
    (answer,), end = command.decode_frames(frame)
    assert end == len(frame)
    assert (answer.opaque, answer.is_response) == (opaque, True)
    return answer


def send(address: str, topic: str, serialization: Serialization) -> SendMessageResponse:
    header = SendMessageV2(
        producer_group="PG",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=BORN,
        flag=5,
        properties=properties.encode(PROPERTIES),
    )
    answer = ask(address, RequestCode.SEND_MESSAGE_V2, header, serialization, BODY)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return SendMessageResponse.from_ext(answer.ext_fields)


def ask_for_route(
    cluster: ApacheCluster, header: GetRouteInfoByTopic, serialization: Serialization
) -> Command:
    """The answer once the broker has told the name server of the topic, which it does behind us."""
    deadline = time.monotonic() + REGISTERED_TIMEOUT_S
    while True:
        answer = ask(
            cluster.namesrv.address, RequestCode.GET_ROUTEINFO_BY_TOPIC, header, serialization
        )
        if answer.code != ResponseCode.TOPIC_NOT_EXIST or time.monotonic() >= deadline:
            return answer
        time.sleep(0.05)


def test_a_message_we_send_comes_back_as_a_record_we_can_read(
    cluster: ApacheCluster, serialization: Serialization, topic: str
) -> None:
    stored = send(cluster.broker.address, topic, serialization)
    header = PullMessage(
        consumer_group=f"G_{topic}",
        topic=topic,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=WITH_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )
    answer = ask(cluster.broker.address, RequestCode.PULL_MESSAGE, header, serialization)

    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert PullMessageResponse.from_ext(answer.ext_fields).next_begin_offset == 1
    (found,) = record.parse_all(answer.body)
    assert (found.topic, found.body, found.flag) == (topic, BODY, 5)
    assert (found.queue_id, found.queue_offset) == (stored.queue_id, stored.queue_offset) == (0, 0)
    assert found.born_timestamp == BORN
    assert record.unpack_host(found.store_host) == (LOOPBACK, cluster.broker.port)
    assert properties.decode(found.properties).items() >= PROPERTIES.items()
    assert record.parse(record.encode(found), check_crc=True) == found
    assert decode_offset_id(stored.msg_id).physical_offset == found.physical_offset


@pytest.mark.parametrize("is_standard", [False, True])
def test_the_route_of_a_topic_names_its_broker(
    cluster: ApacheCluster, serialization: Serialization, topic: str, is_standard: bool
) -> None:
    send(cluster.broker.address, topic, serialization)
    header = GetRouteInfoByTopic(topic, accept_standard_json_only=is_standard)

    answer = ask_for_route(cluster, header, serialization)

    assert answer.code == ResponseCode.SUCCESS, answer.remark
    route = fastjson.decode(answer.body, TopicRoute)
    (broker,) = route.broker_datas
    assert (broker.broker_name, broker.broker_addrs) == ("broker-a", {0: cluster.broker.address})
    (queues,) = route.queue_datas
    assert (queues.write_queue_nums, queues.read_queue_nums) == (4, 4)


def test_an_unknown_topic_is_answered_with_its_code_and_a_remark(
    cluster: ApacheCluster, serialization: Serialization, topic: str
) -> None:
    header = GetRouteInfoByTopic(topic)

    answer = ask(cluster.namesrv.address, RequestCode.GET_ROUTEINFO_BY_TOPIC, header, serialization)

    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark is not None
    assert topic in answer.remark

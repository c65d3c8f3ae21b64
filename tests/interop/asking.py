"""Single questions to a live server, ours or Apache's, and waiting until an answer is so."""

import functools
import ssl
import time
from collections.abc import Callable, Iterable
from typing import Any

from cometmq.codec import bodies, command, fastjson, java_properties
from cometmq.codec.bodies.nameserver import ClusterInfo, TopicList
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.nameserver import (
    GetKVConfig,
    GetKVConfigResponse,
    GetRouteInfoByTopic,
    PutKVConfig,
)
from cometmq.codec.headers.offsets import GetMaxOffset, OffsetResponse
from cometmq.codec.headers.topics import UpdateAndCreateTopic
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.model.route import TopicRoute
from cometmq.model.topic import Permission
from tests.interop import raw

EVENT_TIMEOUT_S = 60.0
POLL_S = 0.05


def ask(
    address: str,
    code: RequestCode,
    header: Header | None = None,
    body: bytes = b"",
    *,
    tls: ssl.SSLContext | None = None,
) -> Command:
    """One request on a connection of its own, and the answer to it."""
    with raw.connect(address, tls=tls) as connection:
        frame = connection.exchange(command.encode(command.request(code, header, body=body)))
    (answer,), _ = command.decode_frames(frame)
    return answer


def ask_well(
    address: str, code: RequestCode, header: Header | None = None, body: bytes = b""
) -> Command:
    """As ``ask``, for a question that must not be refused."""
    answer = ask(address, code, header, body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


def route(namesrv: str, topic: str) -> TopicRoute | None:
    """Where the topic is, or None when the name server says that it does not know it."""
    answer = ask(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoByTopic(topic))
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return fastjson.decode(answer.body, TopicRoute)


def route_documents(namesrv: str) -> dict[str, Any]:
    """Every topic with its whole route as it is on the wire, unknown members included."""
    found = {}
    for topic in sorted(topics(namesrv)):
        header = GetRouteInfoByTopic(topic)
        answer = ask_well(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        found[topic] = fastjson.loads(answer.body)
    return found


def broker_names(namesrv: str, topic: str) -> set[str]:
    """Names of the brokers that have the topic; none when nobody knows it."""
    known = route(namesrv, topic)
    return set() if known is None else {broker.broker_name for broker in known.broker_datas}


def topics(namesrv: str) -> set[str]:
    """Every topic the name server knows."""
    answer = ask_well(namesrv, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    return set(bodies.decode(TopicList, answer.body).topic_list)


def cluster_info(namesrv: str) -> ClusterInfo:
    """Every broker the name server knows."""
    answer = ask_well(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)
    return bodies.decode(ClusterInfo, answer.body)


def put_kv(namesrv: str, namespace: str, key: str, value: str) -> None:
    ask_well(namesrv, RequestCode.PUT_KV_CONFIG, PutKVConfig(namespace, key, value))


def kv(namesrv: str, namespace: str, key: str) -> str | None:
    """A value of the key-value configuration, or None when there is none."""
    answer = ask(namesrv, RequestCode.GET_KV_CONFIG, GetKVConfig(namespace, key))
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return GetKVConfigResponse.from_ext(answer.ext_fields).value


def settings(namesrv: str) -> dict[str, str]:
    """All settings of a name server by key."""
    return java_properties.loads(ask_well(namesrv, RequestCode.GET_NAMESRV_CONFIG).body)


def change_setting(namesrv: str, key: str, value: str) -> None:
    body = java_properties.dumps({key: value})
    ask_well(namesrv, RequestCode.UPDATE_NAMESRV_CONFIG, body=body)


def create_topic(broker: str, topic: str, *, queues: int = 4) -> None:
    """Make the topic known to a broker, which tells its name servers."""
    header = UpdateAndCreateTopic(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=Permission.READ | Permission.WRITE,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=False,
    )
    ask_well(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def limit_retries(broker: str, group: str, times: int) -> None:
    """Make the group known to a broker, with so many retries for members that cannot say how many.

    Those speak an old version of the protocol, as the C++ client does.
    """
    body = bodies.encode(SubscriptionGroupConfig(group, retry_max_times=times))
    ask_well(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


def wait_until_known(namesrvs: Iterable[str], topic: str) -> None:
    """Return once every name server was told of the topic."""
    for namesrv in namesrvs:
        wait_until(functools.partial(_knows, namesrv, topic), f"{namesrv} knows {topic}")


def stored_count(broker: str, topic: str, *, queues: int) -> int:
    """How many messages a broker has of a topic."""
    answers = [
        ask_well(broker, RequestCode.GET_MAX_OFFSET, GetMaxOffset(topic, queue))
        for queue in range(queues)
    ]
    return sum(OffsetResponse.from_ext(answer.ext_fields).offset for answer in answers)


def wait_until(is_so: Callable[[], bool], what: str, *, timeout_s: float = EVENT_TIMEOUT_S) -> None:
    """Look again and again until it is so; ``TimeoutError`` names ``what`` never came."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() >= deadline:
            raise TimeoutError(f"still not so after {timeout_s:g} s: {what}")
        time.sleep(POLL_S)


def _knows(namesrv: str, topic: str) -> bool:
    return topic in topics(namesrv)

"""Typed headers: loose reading, strict writing, and a header for every request that needs one."""

from collections import Counter
from enum import StrEnum

import pytest

from cometmq.codec.codes import RequestCode
from cometmq.codec.headers import I32, REQUEST_HEADERS, RESPONSE_HEADERS, Header
from cometmq.codec.headers.clients import HeartbeatResponse, UnregisterClient
from cometmq.codec.headers.offsets import (
    BoundaryType,
    GetMaxOffset,
    OffsetResponse,
    SearchOffsetByTimestamp,
)
from cometmq.codec.headers.pull import PullMessage, PullMessageResponse
from cometmq.codec.headers.query import QueryMessage
from cometmq.codec.headers.registration import BrokerHeartbeat, RegisterMessageFilterClass
from cometmq.codec.headers.send import SendMessage, SendMessageResponse, SendMessageV2
from cometmq.codec.headers.topics import UpdateAndCreateTopic
from cometmq.errors import LocalProtocolError, RemoteProtocolError

REQUESTS_WITHOUT_FIELDS = {
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.TRIGGER_DELETE_FILES,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.HEART_BEAT,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.CHECK_CLIENT_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
    RequestCode.GET_TIMER_CHECK_POINT,
    RequestCode.GET_TIMER_METRICS,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    RequestCode.GET_UNIT_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.UPDATE_NAMESRV_CONFIG,
    RequestCode.GET_NAMESRV_CONFIG,
    RequestCode.GET_ALL_PRODUCER_INFO,
    RequestCode.DELETE_EXPIRED_COMMITLOG,
    RequestCode.QUERY_ASSIGNMENT,
    RequestCode.SET_MESSAGE_REQUEST_MODE,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    RequestCode.GET_BROKER_HA_STATUS,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.COMET_LOG_STATUS,
}

SEND_EXT = {
    "producerGroup": "PG",
    "topic": "orders",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "-1",
    "sysFlag": "0",
    "bornTimestamp": "1794780425331",
    "flag": "0",
}
SEND_V2_EXT = dict(zip("abcdefgh", SEND_EXT.values(), strict=True))


def test_every_request_has_a_header_or_no_fields() -> None:
    with_header = set(REQUEST_HEADERS)

    assert with_header | REQUESTS_WITHOUT_FIELDS == set(RequestCode)
    assert with_header & REQUESTS_WITHOUT_FIELDS == set()


def test_no_two_headers_claim_the_same_code() -> None:
    headers = {*REQUEST_HEADERS.values(), *RESPONSE_HEADERS.values()}

    requests = Counter(code for header in headers for code in header.requests)
    answers = Counter(code for header in headers for code in header.answers)

    assert set(requests.values()) == {1}
    assert set(answers.values()) == {1}
    assert not any(header.requests and header.answers for header in headers)


def test_a_header_is_found_by_the_plain_number() -> None:
    assert REQUEST_HEADERS[RequestCode(361)] is PullMessage
    assert RESPONSE_HEADERS[RequestCode(310)] is SendMessageResponse


def test_long_and_short_sends_have_the_same_attributes_in_the_same_order() -> None:
    assert SendMessageV2.__struct_fields__ == SendMessage.__struct_fields__
    ours = ("cometProducerId", "cometSequence")
    assert SendMessageV2.__struct_encode_fields__ == (*"abcdefghijklmn", *ours)
    assert SendMessage.__struct_encode_fields__[-6:] == (
        "unitMode",
        "maxReconsumeTimes",
        "batch",
        "bname",
        *ours,
    )


def test_long_and_short_sends_read_the_same_values() -> None:
    long = SendMessage.from_ext({**SEND_EXT, "batch": "true", "bname": "broker-a"})
    short = SendMessageV2.from_ext({**SEND_V2_EXT, "m": "true", "n": "broker-a"})

    assert [getattr(long, name) for name in SendMessage.__struct_fields__] == [
        getattr(short, name) for name in SendMessage.__struct_fields__
    ]
    assert short.queue_id == -1
    assert short.properties is None
    assert short.to_ext() == {**SEND_V2_EXT, "m": "true", "n": "broker-a"}


def test_a_pull_is_constructed_in_the_order_of_the_protocol() -> None:
    pull = PullMessage("G", "orders", 3, 100, 32, 2, 99, 15_000, None, 7)

    assert pull.to_ext() == {
        "consumerGroup": "G",
        "topic": "orders",
        "queueId": "3",
        "queueOffset": "100",
        "maxMsgNums": "32",
        "sysFlag": "2",
        "commitOffset": "99",
        "suspendTimeoutMillis": "15000",
        "subVersion": "7",
    }


def test_fields_are_written_in_the_order_of_the_protocol() -> None:
    answer = PullMessageResponse(0, 4, 0, 13, topic_sys_flag=0)

    assert list(answer.to_ext().items()) == [
        ("suggestWhichBrokerId", "0"),
        ("nextBeginOffset", "4"),
        ("minOffset", "0"),
        ("maxOffset", "13"),
        ("topicSysFlag", "0"),
    ]


@pytest.mark.parametrize(
    ("header", "wire_name"),
    [
        (UnregisterClient, "clientID"),
        (PullMessage, "proxyFrowardClientId"),
        (BrokerHeartbeat, "heartbeatTimeoutMills"),
        (QueryMessage, "_UNIQUE_KEY_QUERY"),
        (HeartbeatResponse, "IS_SUPPORT_HEART_BEAT_V2"),
        (HeartbeatResponse, "IS_SUB_CHANGE"),
        (SendMessageResponse, "MSG_REGION"),
        (SendMessageResponse, "TRACE_ON"),
        (RegisterMessageFilterClass, "classCRC"),
        (REQUEST_HEADERS[RequestCode.INVOKE_BROKER_TO_RESET_OFFSET], "isForce"),
        (REQUEST_HEADERS[RequestCode.GET_BROKER_CONSUME_STATS], "isOrder"),
        (REQUEST_HEADERS[RequestCode.REGISTER_BROKER], "bodyCrc32"),
        (REQUEST_HEADERS[RequestCode.REGISTER_BROKER], "__ZONE_NAME"),
        (RESPONSE_HEADERS[RequestCode.POP_MESSAGE], "reviveQid"),
    ],
)
def test_odd_wire_names_are_javas(header: type[Header], wire_name: str) -> None:
    assert wire_name in header.__struct_encode_fields__


def test_a_missing_required_field_is_named_with_its_request() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        SendMessageV2.from_ext({"a": "PG"})

    assert str(caught.value) == "SEND_MESSAGE_V2: field 'b' (topic) is missing"


def test_a_missing_field_of_an_answer_is_named_with_what_was_asked() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        OffsetResponse.from_ext({})

    assert str(caught.value) == "answer to QUERY_CONSUMER_OFFSET: field 'offset' is missing"


@pytest.mark.parametrize(
    "text", ["", "x", "4.0", "1e3", " 4", "4 ", "1_000", "٤", "--4", "-", "0x4", "2147483648"]
)
def test_a_bad_number_is_refused_with_field_and_value(text: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        GetMaxOffset.from_ext({"topic": "orders", "queueId": text})

    assert str(caught.value) == f"GET_MAX_OFFSET: field 'queueId' is no 32-bit integer: '{text}'"


def test_a_long_bad_value_is_shortened() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        OffsetResponse.from_ext({"offset": "9" * 100_000})

    assert str(caught.value).endswith(f"is no 64-bit integer: '{'9' * 40}…'")


@pytest.mark.parametrize(
    ("text", "value"),
    [("-2147483648", -(2**31)), ("+7", 7), ("007", 7), ("-0", 0), ("2147483647", 2**31 - 1)],
)
def test_numbers_are_read_as_java_reads_them(text: str, value: int) -> None:
    assert GetMaxOffset.from_ext({"topic": "orders", "queueId": text}).queue_id == value


def test_64_bit_fields_take_all_64_bits() -> None:
    assert OffsetResponse.from_ext({"offset": "9223372036854775807"}).offset == 2**63 - 1
    assert OffsetResponse.from_ext({"offset": "-9223372036854775808"}).offset == -(2**63)
    with pytest.raises(RemoteProtocolError, match="64-bit"):
        OffsetResponse.from_ext({"offset": "9223372036854775808"})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("TRUE", True),
        ("tRuE", True),
        ("false", False),
        ("1", False),
        ("yes", False),
    ],
)
def test_only_true_in_any_case_is_true(text: str, value: bool) -> None:
    assert SendMessage.from_ext({**SEND_EXT, "unitMode": text}).unit_mode is value


@pytest.mark.parametrize(("text", "value"), [("1", True), ("True", True), ("0", False)])
def test_batch_may_be_a_number(text: str, value: bool) -> None:
    assert SendMessage.from_ext({**SEND_EXT, "batch": text}).batch is value
    assert SendMessageV2.from_ext({**SEND_V2_EXT, "m": text}).batch is value


def test_empty_text_is_absent_unless_the_field_is_text() -> None:
    send = SendMessage.from_ext({**SEND_EXT, "properties": "", "reconsumeTimes": "", "batch": ""})

    assert send.properties == ""
    assert send.reconsume_times is None
    assert send.batch is None


def test_unknown_fields_are_ignored() -> None:
    extended = {**SEND_EXT, "ns": "tenant", "oway": "true", "ReqT": "0", "AccessKey": ""}

    assert SendMessage.from_ext(extended) == SendMessage.from_ext(SEND_EXT)


def test_cpp_may_create_topics_without_order_and_flag() -> None:
    created = UpdateAndCreateTopic.from_ext(
        {
            "topic": "orders",
            "defaultTopic": "TBW102",
            "readQueueNums": "8",
            "writeQueueNums": "8",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
        }
    )

    assert created.order is None
    assert created.topic_sys_flag is None


@pytest.mark.parametrize(
    ("text", "boundary"),
    [("LOWER", "LOWER"), ("UPPER", "UPPER"), ("upper", "UPPER"), ("sideways", "LOWER")],
)
def test_an_unknown_boundary_is_the_lower_one(text: str, boundary: str) -> None:
    ext = {"topic": "orders", "queueId": "0", "timestamp": "1", "boundaryType": text}

    search = SearchOffsetByTimestamp.from_ext(ext)

    assert search.boundary_type is BoundaryType(boundary)
    assert search.to_ext()["boundaryType"] == boundary


def test_an_unknown_member_of_a_closed_set_is_refused() -> None:
    class Colour(StrEnum):
        RED = "RED"

    class Paint(Header):
        colour: Colour

    assert Paint.from_ext({"colour": "RED"}).colour is Colour.RED
    with pytest.raises(RemoteProtocolError, match="Paint: field 'colour' is no Colour: 'BLUE'"):
        Paint.from_ext({"colour": "BLUE"})


def test_a_number_that_does_not_fit_is_not_written() -> None:
    with pytest.raises(LocalProtocolError, match="field 'queueId' is no 32-bit integer"):
        GetMaxOffset("orders", 2**31).to_ext()


def test_a_required_field_is_not_left_out() -> None:
    class Shelf(Header):
        number: I32

    with pytest.raises(LocalProtocolError, match="Shelf: field 'number' is missing"):
        Shelf(None).to_ext()  # type: ignore[arg-type]

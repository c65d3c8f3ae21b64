"""Bodies that no recording has, in the bytes that Java's own classes gave for them."""

from typing import Any

import msgspec
import pytest

from cometmq.codec import bodies, fastjson
from cometmq.codec.bodies import documents
from cometmq.codec.bodies.clients import (
    Connection,
    ConsumeDirectlyResult,
    ConsumeResult,
    ConsumerRunningInfo,
    HeartbeatData,
    PopProcessQueueInfo,
)
from cometmq.codec.bodies.nameserver import (
    BrokerMemberGroup,
    BrokerMemberGroupAnswer,
    KVTable,
    TopicList,
)
from cometmq.codec.bodies.offsets import (
    ConsumerOffsetTable,
    ConsumerStatusBody,
    CorrectionOffsets,
    QueueOffsetForCpp,
    ResetOffsetBody,
    ResetOffsetBodyForCpp,
)
from cometmq.codec.bodies.pop import BatchAck, BatchAckBody
from cometmq.codec.bodies.queues import QueryAssignmentAnswer, QueueAssignment
from cometmq.codec.bodies.stats import HAConnectionInfo, HARuntimeInfo
from cometmq.codec.bodies.topics import TopicConfigTable
from cometmq.codec.bodies.users import AclInfo, Policy, PolicyEntry, UserInfo
from cometmq.codec.fastjson import PrettyStyle
from cometmq.errors import LocalProtocolError, RemoteProtocolError
from cometmq.model.offsets import MessageQueue

QUEUE = MessageQueue("t", "b", 0)
QUEUE_TEXT = b'{"brokerName":"b","queueId":0,"topic":"t"}'

JAVA = [
    (
        BrokerMemberGroupAnswer(BrokerMemberGroup("c", "b", {0: "x"})),
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"x"},"brokerName":"b","cluster":"c"}}',
    ),
    (ConsumerOffsetTable({"t@g": {0: 1}}), b'{"offsetTable":{"t@g":{0:1}}}'),
    (CorrectionOffsets({0: 3}), b'{"correctionOffsets":{0:3}}'),
    (
        ConsumerStatusBody({QUEUE: 5}),
        b'{"consumerTable":{},"messageQueueTable":{' + QUEUE_TEXT + b":5}}",
    ),
    (
        ConsumerStatusBody({}, {"cid": {QUEUE: 5}}),
        b'{"consumerTable":{"cid":{' + QUEUE_TEXT + b':5}},"messageQueueTable":{}}',
    ),
    (
        ResetOffsetBodyForCpp((QueueOffsetForCpp("t", "b", 0, 9),)),
        b'{"offsetTable":[{"brokerName":"b","offset":9,"queueId":0,"topic":"t"}]}',
    ),
    (KVTable({"k": "v"}), b'{"table":{"k":"v"}}'),
    (TopicList(broker_addr="x"), b'{"brokerAddr":"x","topicList":[]}'),
    (
        ConsumeDirectlyResult(remark="x"),
        b'{"autoCommit":true,"order":false,"remark":"x","spentTimeMills":0}',
    ),
    (
        QueryAssignmentAnswer((QueueAssignment(QUEUE, attachments={"a": "b"}),)),
        b'{"messageQueueAssignments":[{"attachments":{"a":"b"},"messageQueue":'
        + QUEUE_TEXT
        + b',"mode":"PULL"}]}',
    ),
    (
        HARuntimeInfo(ha_connection_info=(HAConnectionInfo("a"),)),
        (
            b'{"haConnectionInfo":[{"addr":"a","diff":0,"inSync":false,"slaveAckOffset":0,'
            b'"transferFromWhere":0,"transferredByteInSecond":0}],"inSyncSlaveNums":0,'
            b'"master":false,"masterCommitLogMaxOffset":0}'
        ),
    ),
    (
        ConsumerRunningInfo(mq_pop_table={QUEUE: PopProcessQueueInfo()}, user_consumer_info={}),
        b'{"mqPopTable":{'
        + QUEUE_TEXT
        + b':{"droped":false,"lastPopTimestamp":0,"waitAckCount":0}},"mqTable":{},"properties":{},'
        b'"statusTable":{},"subscriptionSet":[],"userConsumerInfo":{}}',
    ),
    (
        BatchAckBody("b", (BatchAck("g", "t", "0", start_offset=100, bit_set=b"\x01\x02"),)),
        (
            b'{"acks":[{"b":"AQI=","c":"g","it":0,"pt":0,"q":0,"r":"0","rq":0,"so":100,"t":"t"}],'
            b'"brokerName":"b"}'
        ),
    ),
    (
        AclInfo("User:x", (Policy("Custom", (PolicyEntry("Topic:a", ("Pub",), None, "Allow"),)),)),
        (
            b'{"policies":[{"entries":[{"actions":["Pub"],"decision":"Allow","resource":"Topic:a"}],'
            b'"policyType":"Custom"}],"subject":"User:x"}'
        ),
    ),
]


@pytest.mark.parametrize(("body", "written"), JAVA, ids=[type(body).__name__ for body, _ in JAVA])
def test_a_body_has_java_s_bytes_in_both_directions(body: msgspec.Struct, written: bytes) -> None:
    assert bodies.encode(body) == written
    assert bodies.decode(type(body), written) == body


@pytest.mark.parametrize("codes", [bodies.REQUEST_BODIES, bodies.RESPONSE_BODIES])
def test_no_registered_type_fails_on_an_empty_or_foreign_document(codes: dict[int, Any]) -> None:
    """An old peer may send any subset of the members; what it must send is refused cleanly."""
    for kind in codes.values():
        for data in (b"{}", b"[]", b"5", b"", b"\xff", b'{"offsetTable":[5],"acks":[5]}'):
            try:
                body = bodies.decode(kind, data)
            except RemoteProtocolError:
                continue
            bodies.encode(body)


def test_an_answer_may_be_a_list() -> None:
    users = [UserInfo("a", user_type="Super"), UserInfo("b")]

    written = bodies.encode(users)

    assert written == b'[{"userType":"Super","username":"a"},{"username":"b"}]'
    assert bodies.decode(bodies.RESPONSE_BODIES[3005], written) == users


def test_a_standard_body_refuses_keys_that_need_the_dialect() -> None:
    with pytest.raises(LocalProtocolError, match="key"):
        bodies.encode(KVTable({0: "v"}))  # type: ignore[dict-item]


class TestResetOffsets:
    EXPECTED = ResetOffsetBody({QUEUE: 9, MessageQueue("t", "b", 1): 10})

    @pytest.mark.parametrize(
        "data",
        [
            (
                b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:9,'
                b'{"brokerName":"b","queueId":1,"topic":"t"}:10}}'
            ),
            (
                b'{"offsetTable":[{"brokerName":"b","offset":9,"queueId":0,"topic":"t"},'
                b'{"brokerName":"b","offset":10,"queueId":1,"topic":"t"}]}'
            ),
            (
                b'{"offsetTable":[[{"topic":"t","brokerName":"b","queueId":0},9],'
                b'[{"topic":"t","brokerName":"b","queueId":1},10]]}'
            ),
        ],
        ids=["java", "cpp", "gson"],
    )
    def test_every_client_s_form_is_read(self, data: bytes) -> None:
        assert bodies.decode(ResetOffsetBody, data) == self.EXPECTED

    def test_go_can_split_the_written_form(self) -> None:
        """Go cuts the text at ``,{`` and ``}:``, so there is no blank anywhere."""
        written = bodies.encode(self.EXPECTED)

        assert b" " not in written
        assert bodies.decode(ResetOffsetBody, written) == self.EXPECTED

    @pytest.mark.parametrize(
        "table",
        ["[5]", "[[1,2]]", "[[{},1,2]]", '[{"topic":"t"}]', '[[{"topic":[]},1]]', "[[{},1]]",
         '[{"topic":[],"offset":1}]', '{"x":1}', "5"],
    )  # fmt: skip
    def test_anything_else_is_refused(self, table: str) -> None:
        with pytest.raises(RemoteProtocolError):
            bodies.decode(ResetOffsetBody, f'{{"offsetTable":{table}}}'.encode())


def test_acknowledgements_may_have_long_names() -> None:
    data = b"""{"brokerName":"b","acks":[{"consumerGroup":"g","topic":"t","retry":"1",
        "startOffset":100,"queueId":2,"reviveQueueId":3,"popTime":4,"invisibleTime":5,
        "bitSet":"AQI="}]}"""

    body = bodies.decode(BatchAckBody, data)

    assert body == BatchAckBody("b", (BatchAck("g", "t", "1", 100, 2, 3, 4, 5, b"\x01\x02"),))


def test_a_consume_result_may_be_a_position() -> None:
    """Go answers 309 with integers."""
    result = bodies.decode(ConsumeDirectlyResult, b'{"order":false,"consumeResult":1}')

    assert result.consume_result is ConsumeResult.CR_LATER


def test_a_language_nobody_knows_is_kept() -> None:
    assert bodies.decode(Connection, b'{"language":"NODE_JS"}').language == "NODE_JS"


@pytest.mark.parametrize("data", [b"{}", b'{"clientID":null}', b'{"clientID":"c","x"'])
def test_a_heartbeat_needs_a_client_id(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        bodies.decode(HeartbeatData, data)


class TestDocuments:
    def test_members_of_newer_releases_survive_saving(self) -> None:
        previous = fastjson.loads(
            '{"dataVersion":{"counter":1,"epoch":7},"topicConfigTable":{'
            '"gone":{"topicName":"gone","new":1},"kept":{"topicName":"kept","new":2}},"added":[]}'
        )
        document = fastjson.decode(
            '{"dataVersion":{"counter":2},"topicConfigTable":{"kept":{"topicName":"kept"}}}',
            TopicConfigTable,
        )

        saved = fastjson.loads(
            documents.encode(
                document, name="topics.json", style=PrettyStyle.FASTJSON_2, previous=previous
            )
        )

        assert saved["dataVersion"] == {"counter": 2, "epoch": 7, "timestamp": 0}
        assert list(saved["topicConfigTable"]) == ["kept"]
        assert saved["topicConfigTable"]["kept"]["new"] == 2
        assert list(saved) == ["added", "dataVersion", "topicConfigTable"]

    @pytest.mark.parametrize("previous", [None, {}, {"table": {"t@g": {0: {"o": []}}}}])
    def test_popped_offsets_stay_on_one_line_in_fastjson_2(self, previous: object) -> None:
        info = documents.OrderInfo(9, 60000, [5, 1], {5: 77}, {5: 1}, attempt_id="at")
        table = documents.ConsumerOrderInfoTable({"t@g": {0: info}})

        text = documents.encode(
            table, name="consumerOrderInfo.json", style=PrettyStyle.FASTJSON_2, previous=previous
        )

        assert text == (
            b'{\n\t"table":{\n\t\t"t@g":{\n\t\t\t0:{\n\t\t\t\t"a":"at",\n\t\t\t\t"cm":0,\n'
            b'\t\t\t\t"i":60000,\n\t\t\t\t"l":0,\n\t\t\t\t"o":[5,1],\n'
            b'\t\t\t\t"oc":{\n\t\t\t\t\t5:1\n\t\t\t\t},\n\t\t\t\t"ot":{\n\t\t\t\t\t5:77\n\t\t\t\t},'
            b'\n\t\t\t\t"popTime":9\n\t\t\t}\n\t\t}\n\t}\n}'
        )

    def test_the_offsets_of_a_broadcasting_client_are_written_as_java_does(self) -> None:
        table = documents.LocalOffsetTable({QUEUE: 17})

        text = documents.encode(table, name="offsets.json", style=PrettyStyle.FASTJSON_1)

        assert text == (
            b'{\n\t"offsetTable":{{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":0,\n'
            b'\t\t\t"topic":"t"\n\t\t}:17\n\t}\n}'
        )
        assert documents.decode(text, name="offsets.json") == table

    def test_the_settings_of_a_name_server_stay_on_one_line(self) -> None:
        table = documents.KVConfigTable({"ORDER_TOPIC_CONFIG": {"t": "b:4"}})

        text = documents.encode(table, name="kvConfig.json", style=PrettyStyle.FASTJSON_1)

        assert text == b'{"configTable":{"ORDER_TOPIC_CONFIG":{"t":"b:4"}}}'

    def test_a_file_takes_only_its_own_document(self) -> None:
        with pytest.raises(LocalProtocolError, match=r"topics\.json cannot hold a KVConfigTable"):
            documents.encode(
                documents.KVConfigTable(), name="topics.json", style=PrettyStyle.FASTJSON_1
            )

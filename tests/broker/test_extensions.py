"""What only our own pipeline asks for, over sockets; and that nobody else notices it."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.codec import batch, core, properties, record
from cometmq.codec.batch import BatchItem
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.extensions import ArchiveCommit, ArchiveRemove, LogStatusResponse
from cometmq.codec.headers.send import SendMessage
from cometmq.testing.local_cluster import BlockingBroker, LocalCluster
from tests.broker.kit import Peer, bodies_of, connected, send_ext

TOPIC = "orders"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BlockingBroker]:
    with LocalCluster(folder=tmp_path) as cluster:
        cluster.create_topic(TOPIC)
        yield cluster.broker


def send(
    peer: Peer, sequence: int, body: bytes = b"body", *, binary: bool = False, **changes: str
) -> dict[str, str]:
    """What an idempotent send is answered with; it asks for the shortest way otherwise."""
    key = properties.encode({"UNIQ_KEY": f"key-{sequence}"})
    ext = send_ext(TOPIC, i=key, cometProducerId="p", cometSequence=str(sequence), **changes)
    answer = peer.ask(RequestCode.SEND_MESSAGE_V2, ext, body, binary=binary)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer.ext_fields


def send_batch(peer: Peer, first: int, *texts: bytes) -> dict[str, str]:
    return send(peer, first, batch.encode(BatchItem(0, text, b"") for text in texts), m="true")


def stored(peer: Peer) -> list[bytes]:
    return bodies_of(peer.pull(TOPIC, maxMsgNums="32"))


def log_status(peer: Peer) -> LogStatusResponse:
    answer = peer.ask(RequestCode.COMET_LOG_STATUS)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return core.read(answer, LogStatusResponse)


def commit(peer: Peer, name: str, offset: int) -> Command:
    return peer.ask(RequestCode.COMET_ARCHIVE_COMMIT, ArchiveCommit(name, offset).to_ext())


class TestIdempotentSends:
    @pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
    def test_a_repeat_is_answered_as_the_first_time(
        self, broker: BlockingBroker, binary: bool
    ) -> None:
        with connected(broker.address) as peer:
            for _ in range(2):
                peer.send(TOPIC, b"plain", i="UNIQ_KEY\x01k\x02")

            first = [send(peer, number, binary=binary) for number in range(3)]
            again = [send(peer, number, binary=binary) for number in range(3)]

            assert again == first
            assert stored(peer) == [b"plain"] * 2 + [b"body"] * 3

    def test_with_long_names_too(self, broker: BlockingBroker) -> None:
        header = SendMessage("g", TOPIC, "TBW102", 4, 0, 0, 1, 0, "UNIQ_KEY\x01k\x02")
        ext = {**header.to_ext(), "cometProducerId": "p", "cometSequence": "0"}
        with connected(broker.address) as peer:
            peer.send(TOPIC, b"plain", i="UNIQ_KEY\x01k\x02")
            answers = [peer.ask(RequestCode.SEND_MESSAGE, ext, b"a").ext_fields for _ in range(3)]

            assert answers[0] == answers[1] == answers[2]
            assert stored(peer) == [b"plain", b"a"]

    @pytest.mark.slow
    @pytest.mark.parametrize("how", ["restart", "kill"])
    def test_also_after_the_broker_ended(self, broker: BlockingBroker, how: str) -> None:
        with connected(broker.address) as peer:
            first = [send(peer, 0), send_batch(peer, 1, b"a", b"b"), send(peer, 3)]

        if how == "kill":
            broker.kill()
            broker.start()
        else:
            broker.restart()

        with connected(broker.address) as peer:
            again = [send(peer, 0), send_batch(peer, 1, b"a", b"b"), send(peer, 3)]
            assert again == first
            assert send(peer, 4)["queueOffset"] == "4"
            assert stored(peer) == [b"body", b"a", b"b", b"body", b"body"]

    def test_a_deleted_topic_begins_anew(self, broker: BlockingBroker) -> None:
        with connected(broker.address) as peer:
            send(peer, 0)
            answer = peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
            assert answer.code == ResponseCode.SUCCESS, answer.remark

            assert send(peer, 0)["queueOffset"] == "0"


class TestOthers:
    def test_a_client_that_knows_nothing_of_it_sees_no_difference(
        self, broker: BlockingBroker
    ) -> None:
        with connected(broker.address) as pipeline, connected(broker.address) as peer:
            before = peer.send(TOPIC, b"a", e="1", i="UNIQ_KEY\x01k\x02")
            send(pipeline, 0, b"b", e="1")
            after = peer.send(TOPIC, b"c", e="1", i="UNIQ_KEY\x01k\x02")
            pulled = peer.pull(TOPIC, queueId="1")

            assert before.ext_fields.keys() == after.ext_fields.keys()
            assert after.ext_fields["queueOffset"] == "2"
            assert bodies_of(pulled) == [b"a", b"b", b"c"]
            plain, marked, again = (
                properties.decode(item.properties) for item in record.parse_all(pulled.body)
            )
            assert plain == again
            assert set(marked) - set(plain) == {"COMET_SEQ"}

    def test_a_pull_without_our_fields_gets_what_it_always_got(
        self, broker: BlockingBroker
    ) -> None:
        with connected(broker.address) as peer:
            for number in range(40):
                peer.send(TOPIC, b"%d" % number)

            assert len(bodies_of(peer.pull(TOPIC, maxMsgNums="1000"))) == 32


class TestLargerPulls:
    @pytest.fixture
    def peer(self, broker: BlockingBroker) -> Iterator[Peer]:
        with connected(broker.address) as peer:
            for number in range(20):
                items = (BatchItem(0, b"%d" % (50 * number + i), b"") for i in range(50))
                assert peer.send(TOPIC, batch.encode(items), m="true").code == 0
            yield peer

    def test_as_many_come_as_are_asked_for(self, peer: Peer) -> None:
        found = peer.pull(TOPIC, cometMaxMsgNums="700")

        assert bodies_of(found) == [b"%d" % number for number in range(700)]

    def test_both_limits_count(self, peer: Peer) -> None:
        small = peer.pull(TOPIC, cometMaxMsgNums="700", cometMaxMsgBytes="1000")

        assert 1 <= len(bodies_of(small)) < 20

    def test_the_pulls_before_and_after_are_as_ever(self, peer: Peer) -> None:
        counts = [
            len(bodies_of(peer.pull(TOPIC, cometMaxMsgNums=count)))
            for count in (None, "100", None, None)
        ]

        assert counts == [32, 100, 32, 32]

    def test_what_is_no_number_is_refused(self, peer: Peer) -> None:
        answer = peer.pull(TOPIC, cometMaxMsgNums="many")

        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert peer.is_served()


class TestLog:
    def test_its_status_says_which_files_may_be_read_how_far(
        self, broker: BlockingBroker, tmp_path: Path
    ) -> None:
        with connected(broker.address) as peer:
            assert (log_status(peer).newest_file, log_status(peer).confirmed_offset) == ("", 0)
            assert (log_status(peer).sample_begin, log_status(peer).sample_digest) == (0, "")
            peer.send(TOPIC)
            broker.restart()
        with connected(broker.address) as peer:
            status = log_status(peer)

        newest = Path(status.newest_file)
        assert newest.is_relative_to(status.store_root)
        assert Path(status.store_root).is_relative_to(tmp_path)
        assert newest.stat().st_ino == status.newest_file_inode
        assert newest.stat().st_size == status.file_bytes
        assert 0 == status.begin_offset < status.confirmed_offset == status.end_offset
        log = newest.read_bytes()[: status.confirmed_offset]
        assert [item.body for item in record.parse_all(log)] == [b"body"]
        assert len(log) > 128
        digest = hashlib.sha256(log[:128] + log).hexdigest()
        assert (status.sample_begin, status.sample_digest) == (0, digest)

    def test_an_archive_is_kept_over_a_restart_until_it_is_removed(
        self, broker: BlockingBroker
    ) -> None:
        with connected(broker.address) as peer:
            peer.send(TOPIC)
        broker.restart()
        with connected(broker.address) as peer:
            end = log_status(peer).confirmed_offset
            assert commit(peer, "lake", end).ext_fields == {"offset": str(end)}
            assert commit(peer, "lake", end + 1).code == ResponseCode.INVALID_PARAMETER
        broker.kill()
        broker.start()

        with connected(broker.address) as peer:
            assert commit(peer, "lake", 0).ext_fields == {"offset": str(end)}
            remove = ArchiveRemove("lake").to_ext()
            codes = [peer.ask(RequestCode.COMET_ARCHIVE_REMOVE, remove).code for _ in range(2)]
            assert codes == [ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND]

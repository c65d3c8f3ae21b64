"""Ext fields of our own: larger pulls. (Idempotent sends have tests of their own.)"""

from typing import Any

import pytest

from cometmq.broker.extensions import large_limits
from cometmq.codec import core
from cometmq.codec.command import Command, decode_frames, encode
from cometmq.codec.headers.pull import PullMessage
from cometmq.codec.headers.send import SendMessageV2
from cometmq.errors import BrokerError
from cometmq.store.results import GetLimits
from tests.unit.broker import tables
from tests.unit.broker.data_path import pulling, sending

USUAL = GetLimits(32, 256 * 1024, 8, 64 * 1024, 800)
SETTINGS = tables.broker_settings()


def limits(count: str | None = None, bytes_max: str | None = None) -> GetLimits:
    return large_limits(count, bytes_max, USUAL, SETTINGS)


def test_a_large_pull_gets_what_it_asks_for_from_disk_too() -> None:
    asked = limits("4096", str(8 << 20))

    assert asked == GetLimits(4096, 8 << 20, 4096, 8 << 20, 4096)


def test_what_is_not_asked_for_stays_as_usual() -> None:
    assert limits() == USUAL
    assert limits(count="100") == GetLimits(100, 256 * 1024, 100, 64 * 1024, 800)
    assert limits(bytes_max="100") == GetLimits(32, 100, 8, 100, 800)


def test_there_is_an_end_to_it() -> None:
    asked = limits("9223372036854775807", "9223372036854775807")

    assert asked == GetLimits(65_536, 12 << 20, 65_536, 12 << 20, 65_536)
    assert limits("0", "0") == GetLimits(1, 1, 1, 1, 800)


@pytest.mark.parametrize("text", ["-1", "many", "1.5", " 1", "٣", "9223372036854775808"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(BrokerError, match="cometMaxMsgNums"):
        limits(count=text)
    with pytest.raises(BrokerError, match="cometMaxMsgBytes"):
        limits(bytes_max=text)


class TestHeaders:
    """Whether a request has fields of ours is seen when its header is read, in both cores."""

    @pytest.mark.parametrize("serialization", [0, 1])
    def test_of_a_pull(self, serialization: int) -> None:
        header = pulling(large_count="4096")
        command = sent(Command(11, serialization=serialization, ext=header.to_ext()))

        found = core.read(command, PullMessage)

        assert found == header
        assert found.is_extended
        assert is_left_to_the_rules(command), "nothing may answer it without looking at it"

    @pytest.mark.parametrize("serialization", [0, 1])
    @pytest.mark.parametrize("field", ["producer_id", "sequence"])
    def test_of_a_send(self, serialization: int, field: str) -> None:
        changes: dict[str, Any] = {field: "7"}
        header, body = sending(**changes)
        command = sent(Command(310, serialization=serialization, ext=header.to_ext(), body=body))

        found = core.read(command, SendMessageV2)

        assert found == header
        assert found.is_extended
        assert is_left_to_the_rules(command), "nothing may store it without looking at it"

    def test_of_those_that_have_none(self) -> None:
        send, _ = sending()
        read_send = core.read(sent(Command(310, ext=send.to_ext())), SendMessageV2)
        read_pull = core.read(sent(Command(11, ext=pulling().to_ext())), PullMessage)

        assert not read_send.is_extended
        assert not read_pull.is_extended


def is_left_to_the_rules(command: Command) -> bool:
    """The compiled quick ways take a header that is there for one without fields of ours."""
    return core.active() == "plain" or command.header is None


def sent(command: Command) -> Command:
    """The command as it comes out of a socket."""
    assert decode_frames(encode(command))[0]
    return core.decode_frames(encode(command))[0][0]

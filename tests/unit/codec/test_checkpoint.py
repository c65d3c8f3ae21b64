import pytest

from cometmq.codec import checkpoint
from cometmq.codec.checkpoint import Checkpoint
from cometmq.errors import LocalProtocolError, RemoteProtocolError


def test_a_checkpoint_is_the_start_of_a_page() -> None:
    page = checkpoint.pack(Checkpoint(1, 2, 3, 4, 5))

    assert page[:40].hex() == "".join(f"{n:016x}" for n in (1, 2, 3, 4, 5))
    assert page[40:] == bytes(4056)
    assert checkpoint.unpack(page) == Checkpoint(1, 2, 3, 4, 5)


def test_an_empty_page_is_a_checkpoint_of_nothing() -> None:
    assert checkpoint.unpack(bytes(4096)) == Checkpoint()


def test_a_cut_off_checkpoint_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        checkpoint.unpack(bytes(39))


def test_a_value_that_does_not_fit_is_refused() -> None:
    with pytest.raises(LocalProtocolError):
        checkpoint.pack(Checkpoint(log_timestamp=1 << 63))

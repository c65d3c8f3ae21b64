"""Letting go of sockets that belong to another process."""

import os
import socket
from pathlib import Path

import pytest

from cometmq.client.forking import let_go

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def test_a_socket_that_was_let_go_is_harmless_and_keeps_its_number() -> None:
    kept, other = socket.socketpair()
    with kept, other:
        let_go([kept.fileno()])

        assert os.fstat(kept.fileno()).st_rdev == Path(os.devnull).stat().st_rdev
        assert os.write(kept.fileno(), b"goes nowhere") == 12
        assert other.recv(100) == b""  # nobody holds the other end any more


def test_a_copy_that_is_let_go_changes_nothing_for_its_owner() -> None:
    owner, other = socket.socketpair()
    with owner, other, socket.socket(fileno=os.dup(owner.fileno())) as copy:
        let_go([copy.fileno()])
        owner.sendall(b"still there")

        assert other.recv(100) == b"still there"


def test_nothing_to_let_go_is_no_problem() -> None:
    before = os.dup(0)
    os.close(before)

    let_go([])
    after = os.dup(0)
    os.close(after)

    assert after == before

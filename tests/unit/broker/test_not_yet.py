"""What this broker cannot do yet is refused with words that say so."""

import pytest

from cometmq.broker.handlers.not_yet import MISSING, NotYetHandlers
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.transaction import EndTransaction
from cometmq.remoting.routes import Routes
from tests.unit.broker.fake_channel import FakeChannel, Reply

NOT_SUPPORTED = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def ask(command: Command) -> list[Reply]:
    routes = Routes()
    NotYetHandlers().add_to(routes)
    return FakeChannel().ask(routes, command)


def end(state: int) -> Command:
    header = EndTransaction("PG", 1, 2, state, "ID")
    return Command(RequestCode.END_TRANSACTION, ext=header.to_ext())


@pytest.mark.parametrize("code", sorted(MISSING))
def test_a_request_that_is_not_served_yet_is_refused_with_the_reason(code: RequestCode) -> None:
    (reply,) = ask(Command(code))

    assert reply.code == NOT_SUPPORTED
    assert reply.remark is not None
    assert reply.remark.startswith(f" request type {code.value} not supported: ")
    assert "not supported yet" in reply.remark


def test_all_requests_of_pop_consumption_are_refused() -> None:
    pop = {code for code in RequestCode if 200050 <= code <= 200151}

    assert len(pop) == 7
    assert pop <= MISSING.keys()


@pytest.mark.parametrize("state", [8, 12])
def test_the_end_of_a_transaction_is_refused(state: int) -> None:
    (reply,) = ask(end(state))

    assert reply.code == NOT_SUPPORTED
    assert reply.remark == " request type 37 not supported: transactions are not supported yet"


@pytest.mark.parametrize("state", [0, 4, -1])
def test_a_transaction_of_unknown_state_is_not_answered_at_all(state: int) -> None:
    assert ask(end(state)) == []


def test_the_end_of_a_transaction_without_its_fields_is_an_error() -> None:
    (reply,) = ask(Command(RequestCode.END_TRANSACTION, ext={"producerGroup": "PG"}))

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark == "END_TRANSACTION: field 'tranStateTableOffset' is missing"

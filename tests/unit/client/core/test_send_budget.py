import pytest

from cometmq.client.core.latency import Failure
from cometmq.client.core.send_budget import (
    RETRIED_CODES,
    SendBudget,
    code_of,
    failure_of,
    is_retried,
)
from cometmq.errors import (
    BrokerError,
    ConnectionLost,
    InvalidArgument,
    NoRoute,
    NotFound,
    Refused,
    RemoteProtocolError,
    RequestTimeout,
    SendFailed,
    TooManyRequests,
    Unreachable,
)

LOST = ConnectionLost("h:1", "closed")
LATE = RequestTimeout("h:1", 1000)
AWAY = Unreachable("h:1", "refused")
BUSY = Refused("h:1", "SEND_MESSAGE_V2", 2, "busy")
ILLEGAL = Refused("h:1", "SEND_MESSAGE_V2", 13, "too large")


def budget(timeout_ms: int = 3_000, tries_max: int = 3, try_timeout_ms: int = -1) -> SendBudget:
    return SendBudget(
        "orders", 0, timeout_ms=timeout_ms, tries_max=tries_max, try_timeout_ms=try_timeout_ms
    )


def test_the_codes_that_are_retried_are_those_of_5_3_1() -> None:
    assert {1, 2, 14, 16, 17, 204, 205, 1500} == RETRIED_CODES


@pytest.mark.parametrize(
    ("error", "retried", "code", "failure"),
    [
        (AWAY, True, 10001, Failure.REMOTING),
        (LOST, True, 10001, Failure.REMOTING),
        (LATE, True, 10002, Failure.REMOTING),
        (BUSY, True, 2, Failure.BROKER),
        (ILLEGAL, False, 13, Failure.BROKER),
        (BrokerError(1500, "go away"), True, 1500, Failure.BROKER),
        (TooManyRequests("h:1", 10), False, 10003, Failure.CLIENT),
        (NotFound("broker", "b"), True, 10003, Failure.CLIENT),
        (RemoteProtocolError("half a frame"), True, 10003, Failure.CLIENT),
        (InvalidArgument("selector", "it raised"), False, 10003, Failure.CLIENT),
    ],
)
def test_what_a_failure_means(error: Exception, retried: bool, code: int, failure: Failure) -> None:
    assert is_retried(error) == retried
    assert code_of(error) == code
    assert failure_of(error) is failure


def test_each_try_gets_what_is_left() -> None:
    send = budget()

    assert send.begin("a", 100) == 2_900
    assert send.give_up(AWAY, 1_000) is None
    assert send.begin("b", 1_000) == 2_000
    assert send.last_broker == "b"


def test_a_bound_on_tries_does_not_count_for_the_last() -> None:
    send = budget(try_timeout_ms=500, tries_max=2)

    assert send.begin("a", 0) == 500
    assert send.begin("b", 600) == 2_400


def test_a_bound_on_tries_is_not_longer_than_what_is_left() -> None:
    assert budget(try_timeout_ms=500).begin("a", 2_800) == 200


def test_when_all_tries_failed_the_error_tells_everything() -> None:
    send = budget()
    send.begin("a", 0)
    send.give_up(LATE, 1_000)
    send.begin("b", 1_000)
    send.give_up(AWAY, 1_001)
    send.begin("a", 1_001)

    failed = send.give_up(BUSY, 1_200)

    assert failed is not None
    assert (failed.topic, failed.tries, failed.cost_ms) == ("orders", 3, 1_200)
    assert (failed.brokers, failed.code) == (("a", "b", "a"), 2)
    assert failed.may_be_stored
    assert str(failed) == (
        "not sent to topic 'orders' in 3 tries (a, b, a) and 1200 ms: h:1 refuses SEND_MESSAGE_V2"
        " with code 2: busy; it may be stored all the same: consumers could get it twice"
    )


def test_what_brokers_refuse_is_not_tried_again() -> None:
    send = budget()
    send.begin("a", 0)

    failed = send.give_up(ILLEGAL, 5)

    assert failed is not None
    assert (failed.tries, failed.code, failed.may_be_stored) == (1, 13, False)


@pytest.mark.parametrize(
    ("error", "may_be_stored"), [(LOST, True), (LATE, True), (AWAY, False), (BUSY, False)]
)
def test_only_a_request_without_answer_may_have_been_stored(
    error: Exception, may_be_stored: bool
) -> None:
    send = budget(tries_max=1)
    send.begin("a", 0)

    failed = send.give_up(error, 5)

    assert failed is not None
    assert failed.may_be_stored == may_be_stored


def test_nothing_follows_when_the_time_is_over() -> None:
    send = budget()
    send.begin("a", 0)

    failed = send.give_up(LATE, 3_000)

    assert failed is not None
    assert failed.code == 10002
    assert not send.can_try_again(3_000)


def test_a_try_that_would_begin_too_late_does_not_begin() -> None:
    send = budget()

    with pytest.raises(SendFailed, match="no time is left of 3000 ms") as failed:
        send.begin("a", 3_001)

    assert (failed.value.tries, failed.value.code) == (0, 10002)
    assert send.left_ms(3_001) == 0
    assert send.last_broker is None


def test_what_is_stored_but_not_safely_may_be_tried_while_tries_are_left() -> None:
    send = budget(tries_max=2)
    send.begin("a", 0)
    assert send.can_try_again(10)

    send.begin("b", 10)

    assert not send.can_try_again(20)


def test_what_keeps_the_next_try_from_beginning_does_not_hide_that_it_may_be_stored() -> None:
    send = budget()
    send.begin("a", 0)
    send.give_up(LATE, 1_000)

    failed = send.abandoned(NoRoute("orders", ()), 1_200)

    assert (failed.tries, failed.cost_ms, failed.brokers) == (1, 1_200, ("a",))
    assert failed.may_be_stored
    assert send.abandoned(failed, 1_300) is failed


def test_a_name_server_that_is_late_does_not_mean_that_a_message_may_be_stored() -> None:
    send = budget()
    send.begin("a", 0)
    send.give_up(AWAY, 1_000)

    assert not send.abandoned(RequestTimeout("ns:9876", 100), 1_200).may_be_stored

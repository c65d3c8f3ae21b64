"""The tries of one send, and the time they have together.

One budget covers finding the route, connecting and every try; each try gets what is left. Which
failures are tried again does not depend on how the caller waits (in Java it does): everything
between here and the broker, a broker without an address (``NotFound``), and the codes of
``RETRIED_CODES``.
"""

from collections.abc import Mapping
from typing import Final

from cometmq.client.core.latency import Failure
from cometmq.codec.codes import ResponseCode
from cometmq.errors import (
    BrokerError,
    ConnectionLost,
    NotFound,
    RemoteProtocolError,
    RequestTimeout,
    SendFailed,
    Unreachable,
)

CONNECT_FAILED: Final = 10001
TIMED_OUT: Final = 10002
CLIENT_FAILED: Final = 10003
"""Java's numbers for failures that are no broker's answer."""

RETRIED_CODES: Final = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST.value,
        ResponseCode.SERVICE_NOT_AVAILABLE.value,
        ResponseCode.SYSTEM_ERROR.value,
        ResponseCode.SYSTEM_BUSY.value,
        ResponseCode.NO_PERMISSION.value,
        ResponseCode.NO_BUYER_ID.value,
        ResponseCode.NOT_IN_CURRENT_UNIT.value,
        ResponseCode.GO_AWAY.value,
    }
)
"""Answers after which another broker is tried, as since 5.3.1."""

_UNANSWERED: Final = (RequestTimeout, ConnectionLost, RemoteProtocolError)
"""After these nobody knows what the broker did."""

_CODES: Final[Mapping[type[BaseException], int]] = {
    Unreachable: CONNECT_FAILED,
    ConnectionLost: CONNECT_FAILED,
    RequestTimeout: TIMED_OUT,
}


class SendBudget:
    """One send. Times are in ms of a clock that never goes back."""

    __slots__ = (
        "_began_ms",
        "_brokers",
        "_timeout_ms",
        "_topic",
        "_tries_max",
        "_try_timeout_ms",
        "may_be_stored",
    )

    def __init__(
        self,
        topic: str,
        now_ms: int,
        *,
        timeout_ms: int,
        tries_max: int = 3,
        try_timeout_ms: int = -1,
    ) -> None:
        """``try_timeout_ms`` bounds each try but the last; -1 does not."""
        self._topic = topic
        self._began_ms = now_ms
        self._timeout_ms = timeout_ms
        self._tries_max = tries_max
        self._try_timeout_ms = try_timeout_ms
        # Who was tried, in this order.
        self._brokers: tuple[str, ...] = ()
        # Whether one of them may have stored the message, as far as the tries that ended tell.
        self.may_be_stored = False

    @property
    def last_broker(self) -> str | None:
        """Who was tried last, None before the first try."""
        return self._brokers[-1] if self._brokers else None

    def left_ms(self, now_ms: int) -> int:
        """What is left of the time, 0 when it is over."""
        return max(0, self._began_ms + self._timeout_ms - now_ms)

    def begin(self, broker: str, now_ms: int) -> int:
        """Count a try; return what it may take in ms. Raises SendFailed when the time is over."""
        left_ms = self.left_ms(now_ms)
        if not left_ms:
            raise self._failed(now_ms, TIMED_OUT, f"no time is left of {self._timeout_ms} ms")
        self._brokers += (broker,)
        is_last = len(self._brokers) >= self._tries_max
        if is_last or self._try_timeout_ms <= 0:
            return left_ms
        return min(left_ms, self._try_timeout_ms)

    def can_try_again(self, now_ms: int) -> bool:
        """Whether tries and time are left, for what is stored but not as it was asked."""
        return len(self._brokers) < self._tries_max and self.left_ms(now_ms) > 0

    def give_up(self, error: Exception, now_ms: int) -> SendFailed | None:
        """What to raise after a try that ended with ``error``; None when another must follow."""
        self.may_be_stored = self.may_be_stored or isinstance(error, _UNANSWERED)
        if is_retried(error) and self.can_try_again(now_ms):
            return None
        return self._failed(now_ms, code_of(error), str(error))

    def abandoned(self, error: Exception, now_ms: int) -> SendFailed:
        """What to raise when ``error`` keeps the next try from beginning."""
        if isinstance(error, SendFailed):
            return error
        return self._failed(now_ms, code_of(error), str(error))

    def _failed(self, now_ms: int, code: int, reason: str) -> SendFailed:
        return SendFailed(
            self._topic,
            len(self._brokers),
            now_ms - self._began_ms,
            self._brokers,
            code,
            reason,
            self.may_be_stored,
        )


def is_retried(error: Exception) -> bool:
    """Whether another broker may do better; it does not where the mistake is ours."""
    if isinstance(error, BrokerError):
        return error.response_code in RETRIED_CODES
    return isinstance(error, (*_UNANSWERED, Unreachable, NotFound))


def code_of(error: Exception) -> int:
    """The number of a failure: the broker's own, or Java's."""
    if isinstance(error, BrokerError):
        return error.response_code
    return _CODES.get(type(error), CLIENT_FAILED)


def failure_of(error: Exception) -> Failure:
    """How a failure counts against its broker."""
    if isinstance(error, BrokerError):
        return Failure.BROKER
    return Failure.REMOTING if type(error) in _CODES else Failure.CLIENT

"""Where users look into sending and consuming: before and after, for each message or batch.

Exceptions in hooks are logged and change nothing, except in ``SendGuard``.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from cometmq.client.core.message import Message
from cometmq.client.core.results import LocalState, SendResult
from cometmq.errors import InvalidArgument
from cometmq.model.offsets import MessageQueue

SendMode = Literal["send", "oneway", "batch", "transaction"]
Outcome = Literal["SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED"]


@dataclass(slots=True)
class SendContext:
    """One send, over all its tries. ``notes`` is for hooks: what one of them leaves for later.

    ``properties`` is the property string; a hook may replace it in ``before``.
    """

    group: str
    topic: str
    mode: SendMode
    kind: Literal["normal", "half", "delay", "reply", "batch"]
    body: bytes
    properties: str
    message_id: str
    tag: str | None
    keys: tuple[str, ...]
    queue: MessageQueue | None = None
    address: str = ""
    began_ms: int = 0
    result: SendResult | None = None
    error: BaseException | None = None
    tries: int = 0
    notes: dict[str, Any] = field(default_factory=dict)


class SendHook(Protocol):
    """Around each send; ``after_send`` sees the final outcome. Both run on the loop: be quick."""

    def before_send(self, context: SendContext) -> None: ...

    def after_send(self, context: SendContext) -> None: ...


class SendGuard(Protocol):
    """May refuse a send by raising."""

    def check(self, context: SendContext) -> None: ...


@dataclass(slots=True)
class ConsumeContext:
    """One call of a handler. ``outcome`` is set before ``after_consume``."""

    group: str
    namespace: str | None
    queue: MessageQueue
    messages: Sequence[Message[Any]]
    mode: Literal["concurrent", "orderly", "broadcast", "pull"]
    began_ms: int = 0
    is_success: bool = False
    outcome: Outcome = "FAILED"
    error: BaseException | None = None
    notes: dict[str, Any] = field(default_factory=dict)


class ConsumeHook(Protocol):
    """Around each call of a handler, and around each result of a pull."""

    def before_consume(self, context: ConsumeContext) -> None: ...

    def after_consume(self, context: ConsumeContext) -> None: ...


class FilterHook(Protocol):
    """May leave messages out before they reach a handler."""

    def wanted(self, group: str, messages: Sequence[Message[Any]]) -> Sequence[Message[Any]]: ...


@dataclass(frozen=True, slots=True)
class TransactionContext:
    """How a transaction ended; ``is_from_check``: its broker has asked for it."""

    group: str
    topic: str
    message_id: str
    transaction_id: str | None
    state: LocalState
    is_from_check: bool
    tag: str | None
    keys: tuple[str, ...]
    address: str
    region: str


class TransactionHook(Protocol):
    """Told when a transaction has ended, or was left open."""

    def after_end(self, context: TransactionContext) -> None: ...


SEND_STEPS: Final = ("before_send", "after_send")
CONSUME_STEPS: Final = ("before_consume", "after_consume")


def check_hooks(argument: str, hooks: object, *kinds: tuple[str, ...]) -> None:
    """Refuse what has the methods of none of these kinds, before a message needs them."""
    advice = "give a list of objects with " + ", or with ".join(map(" and ".join, kinds))
    if not isinstance(hooks, Collection):
        raise InvalidArgument(argument, f"{argument} are {hooks!r}, which is no list", advice)
    for hook in hooks:
        is_complete = any(all(callable(getattr(hook, step, None)) for step in k) for k in kinds)
        if isinstance(hook, type) or not is_complete:
            raise InvalidArgument(argument, f"{hook!r} is none of {argument}", advice)

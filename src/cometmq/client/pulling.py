"""One pull: whom to ask, what to ask, and what the answer means."""

import enum

import msgspec

from cometmq.client.class_filters import ClassFilters
from cometmq.client.core.advice import NO_ADDRESS
from cometmq.client.instance import Instance
from cometmq.codec import core
from cometmq.codec.codes import V5_0_0, RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.pull import PullMessage, PullMessageResponse
from cometmq.codec.record import Record
from cometmq.errors import Unreachable
from cometmq.model.group import SubscriptionData
from cometmq.model.offsets import MessageQueue
from cometmq.model.route import MASTER_ID

_ACCEPTED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


_LITE, _UNKNOWN_CODE = RequestCode.LITE_PULL_MESSAGE, ResponseCode.REQUEST_CODE_NOT_SUPPORTED


class PullFlag(enum.IntFlag):
    """Bits of ``sysFlag`` in a pull."""

    COMMIT = 0x1
    """``commit_offset`` is to be stored."""
    SUSPEND = 0x2
    """The broker may wait for messages."""
    SUBSCRIPTION = 0x4
    """What the pull says of the subscription counts, not what the heartbeat said."""
    CLASS_FILTER = 0x8
    LITE = 0x10


class PullStatus(enum.Enum):
    """What a pull has brought."""

    FOUND = "found"
    NO_NEW = "no new message"
    NO_MATCH = "no message that matches"
    ILLEGAL = "the offset is not in the queue"


_STATUSES = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCH,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.ILLEGAL,
}


class Pulled(msgspec.Struct, frozen=True, gc=False):
    """The answer to a pull; ``next_offset`` is where to go on, whatever the status."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    records: list[Record]


class Puller:
    """Pulls for one group, and remembers which broker each queue is to be pulled from."""

    def __init__(
        self, instance: Instance, group: str, class_filters: ClassFilters | None = None
    ) -> None:
        self._instance = instance
        self._group = group
        self._class_filters = class_filters
        self._suggested: dict[MessageQueue, int] = {}  # broker ids, where it is not the master
        self._without_lite: set[str] = set()  # addresses that have refused lite pulls

    def forget(self, queue: MessageQueue) -> None:
        """Begin with the master again."""
        self._suggested.pop(queue, None)

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: SubscriptionData,
        *,
        count: int,
        flags: PullFlag,
        timeout_ms: int,
        hold_ms: int = 0,
        commit_offset: int = 0,
        bytes_max: int | None = None,
    ) -> Pulled:
        """Ask for messages from ``offset`` on; ``queue`` has the topic as on the wire.

        The subscription travels with the pull when ``flags`` say so. A slave is never told to
        commit. Raises Unreachable, RequestTimeout, ConnectionLost, Refused.
        """
        broker_id, address = await self._reader(queue, timeout_ms)
        if broker_id != MASTER_ID:
            flags &= ~PullFlag.COMMIT
        if subscription.class_filter_mode and self._class_filters is not None:
            flags = flags & ~PullFlag.SUBSCRIPTION | PullFlag.CLASS_FILTER
            address = self._class_filters.server(queue.topic, address)
        with_subscription = bool(flags & PullFlag.SUBSCRIPTION)
        header = PullMessage(
            self._group,
            queue.topic,
            queue.queue_id,
            offset,
            count,
            int(flags),
            commit_offset if flags & PullFlag.COMMIT else 0,
            hold_ms,
            subscription.sub_string if with_subscription else None,
            subscription.sub_version,
            subscription.expression_type,
            bytes_max,
        )
        code = self._code(flags, address)
        accept = (*_ACCEPTED, _UNKNOWN_CODE) if code is _LITE else _ACCEPTED
        answer = await self._instance.ask(
            address, code, header, timeout_ms=timeout_ms, accept=accept
        )
        if answer.code == _UNKNOWN_CODE:
            self._without_lite.add(address)
            code = RequestCode.PULL_MESSAGE
            answer = await self._instance.ask(
                address, code, header, timeout_ms=timeout_ms, accept=_ACCEPTED
            )
        return self._understood(queue, answer)

    def _code(self, flags: PullFlag, address: str) -> RequestCode:
        if flags & PullFlag.LITE and address not in self._without_lite:
            version = self._instance.version_of(address)
            if version is not None and version >= V5_0_0:
                return _LITE
        return RequestCode.PULL_MESSAGE

    async def _reader(self, queue: MessageQueue, timeout_ms: int) -> tuple[int, str]:
        suggested = self._suggested.get(queue, MASTER_ID)
        table = self._instance.routes.table
        found = table.reader(queue.broker_name, suggested)
        if found is None:
            await self._instance.routes.refresh(queue.topic, timeout_ms=timeout_ms)
            found = table.reader(queue.broker_name, suggested)
        if found is None:
            problem = f"no route of '{queue.topic}' has this broker"
            raise Unreachable(queue.broker_name, problem, NO_ADDRESS)
        return found

    def _understood(self, queue: MessageQueue, answer: Command) -> Pulled:
        header = core.read(answer, PullMessageResponse)
        if header.suggest_which_broker_id != self._suggested.get(queue, MASTER_ID):
            self._suggested[queue] = header.suggest_which_broker_id
        return Pulled(
            _STATUSES[ResponseCode(answer.code)],
            header.next_begin_offset,
            header.min_offset,
            header.max_offset,
            core.parse_records(answer.body) if answer.body else [],
        )

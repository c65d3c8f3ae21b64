"""What operators do meanwhile: look messages up, move groups, make and delete topics, archive."""

import asyncio
import random
from collections import deque
from collections.abc import Coroutine
from typing import Any, NamedTuple

from bench.soak_ledger import Cause, Ledger
from bench.soak_plan import MIXED, MOVED, Plan
from bench.soak_python import Draft, Line, Senders, regularly, unless
from cometmq.admin import Admin
from cometmq.codec import core
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.extensions import ArchiveCommit, LogStatusResponse
from cometmq.codec.headers.offsets import ResetOffset
from cometmq.errors import CometError

ARCHIVE = "soak"
RESET_BACK_MS = 5_000
FOUND_AFTER_MS = 1_000
QUERY_S = 1.0
ARCHIVE_S = 1.0
TEMPORARY_QUEUES = 2


class Place(NamedTuple):
    """A broker by its name and its address."""

    name: str
    address: str


class Chores:
    """An operator with the admin library, on connections of its own."""

    def __init__(
        self, admin: Admin, broker: Place, *, ledger: Ledger, senders: Senders, plan: Plan
    ) -> None:
        self._admin = admin
        self._broker = broker
        self._line = Line(broker.address)
        self._ledger = ledger
        self._senders = senders
        self._plan = plan
        self._dice = random.Random(1)
        self._confirmed: deque[tuple[float, int]] = deque()  # when, and how far the log was then
        self._temporary_count = 0
        self.watermark = 0
        self.begin_offset = 0
        self.end_offset = 0

    def loops(self, until: asyncio.Event) -> list[Coroutine[Any, Any, None]]:
        return [
            regularly(QUERY_S, self._query, until),
            regularly(self._plan.topic_s, self._use_temporary_topic, until),
            self._reset_regularly(until),
        ]

    def archiving(self, until: asyncio.Event) -> list[Coroutine[Any, Any, None]]:
        return [regularly(ARCHIVE_S, self._archive, until)]

    def close(self) -> None:
        self._line.close()

    async def _query(self) -> None:
        now_ms = self._ledger.now_ms()
        old = [key for at_ms, key in self._senders.latest if now_ms - at_ms > FOUND_AFTER_MS]
        if not old:
            return
        key = self._dice.choice(old)
        try:
            found = await self._admin.messages.by_key(MIXED, key)
        except CometError as error:
            self._ledger.failed(f"query of {key}", error)
            return
        self._ledger.counts["queries by key"] += 1
        if len(found) != 1:
            self._ledger.fault(f"{MIXED}: {len(found)} messages with the key {key}, not 1")

    async def _reset_regularly(self, until: asyncio.Event) -> None:
        await unless(until, self._plan.reset_s)
        await regularly(self._plan.reset_s, self._reset, until)

    async def _reset(self) -> None:
        """As mqadmin asks for it: one request for all queues, by time; never forward."""
        begin_ms = self._ledger.now_ms()
        to_ms = int(self._ledger.oldest_ms(MOVED)) - RESET_BACK_MS
        header = ResetOffset(MIXED, MOVED, to_ms, is_force=True)
        try:
            answer = await self._line.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        except CometError as error:
            self._ledger.failed(f"reset of {MOVED}", error)
        else:
            self._ledger.counts["resets"] += 1
            if answer.code != ResponseCode.SUCCESS:
                self._ledger.failed(f"reset of {MOVED}", f"{answer.code}: {answer.remark}")
        # One that failed may have moved the group nevertheless.
        self._ledger.disturbed(Cause.RESET, MOVED, begin_ms)

    async def _use_temporary_topic(self) -> None:
        """And a group on it; no name is used twice, so what is kept of them would add up."""
        self._temporary_count += 1
        topic = f"SoakTemporary{self._temporary_count}"
        group = f"G_{topic}"
        try:
            await self._admin.topics.create(topic, queues=TEMPORARY_QUEUES, is_new=False)
            await self._admin.groups.create(group, is_new=False)
            acknowledged = [await self._fill(topic, number) for number in range(4)]
            await self._admin.offsets.commit(group, topic, self._broker.name, 0, 1)
            stats = await self._admin.topics.stats(topic)
            await self._admin.groups.delete(group)
            await self._admin.topics.delete(topic)
        except CometError as error:
            self._ledger.failed(f"topic {topic}", error)
            return
        self._ledger.counts["topics made and deleted"] += 1
        stored = sum(queue.max_offset for queue in stats.queues)
        if stored < sum(acknowledged):
            self._ledger.fault(f"{topic}: {stored} messages, {sum(acknowledged)} were sent")

    async def _fill(self, topic: str, number: int) -> bool:
        key = f"temporary-{number}"
        draft = Draft(topic, number % TEMPORARY_QUEUES, [key], [b"temporary"], {})
        answer = await self._senders.ask(draft)
        if answer.code != ResponseCode.SUCCESS:
            self._ledger.failed(f"send to {topic}", f"{answer.code}: {answer.remark}")
        return answer.code == ResponseCode.SUCCESS

    async def _archive(self) -> None:
        """Move the watermark up to what nobody waits for any more, so that files go."""
        now_ms = self._ledger.now_ms()
        try:
            answer = await self._line.ask(RequestCode.COMET_LOG_STATUS)
            status = core.read(answer, LogStatusResponse)
            self.begin_offset, self.end_offset = status.begin_offset, status.end_offset
            self._confirmed.append((now_ms, status.confirmed_offset))
            oldest_ms = self._ledger.oldest_ms() - self._plan.keep_s * 1000
            while len(self._confirmed) > 1 and self._confirmed[1][0] < oldest_ms:
                self._confirmed.popleft()
            at_ms, offset = self._confirmed[0]
            wanted = offset if at_ms < oldest_ms else self.watermark
            commit = ArchiveCommit(ARCHIVE, wanted)
            answer = await self._line.ask(RequestCode.COMET_ARCHIVE_COMMIT, commit)
        except CometError as error:
            self._ledger.failed("archive", error)
            return
        if answer.code == ResponseCode.SUCCESS:
            self.watermark = max(self.watermark, wanted)
        else:
            self._ledger.failed("archive", f"{answer.code}: {answer.remark}")

"""Traffic of Apache's Java clients, both generations: producers, and members that come and go."""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import random
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench.soak_ledger import Cause, Ledger
from bench.soak_plan import (
    AGAIN,
    DELAYED,
    LATER,
    LEVELS_S,
    MIXED,
    MOVED,
    ORDERED,
    ORDERLY,
    RETRIED,
    SHARED,
    Plan,
)
from bench.soak_python import body, key_in, regularly, unless
from cometmq.testing.history import Received, Sent
from tests.interop import feature_shell
from tests.interop.cache import default_cache
from tests.interop.clients import JAVA_VERSIONS, Event
from tests.interop.feature_shell import LAST_WORDS, FeatureProgram

SEND_S = 0.6
DRAIN_S = 0.5
SEND_TIMEOUT_MS = 3_000
AWAY_S = 2.0
SHARDS = 16


class Seat(NamedTuple):
    """A place in a group; whoever takes it has these options."""

    topic: str
    group: str
    options: Mapping[str, Any] = {}


SEATS = (
    Seat(MIXED, SHARED),
    Seat(MIXED, MOVED),
    Seat(ORDERLY, ORDERED, {"orderly": True}),
    Seat(DELAYED, LATER),
    Seat(RETRIED, AGAIN, {"fail": {"times": 1}}),
)
"""In every group sits a member of each generation."""


class Program(FeatureProgram):
    """A client program of which every event is taken once, so that they do not pile up here."""

    def take(self, command_id: int) -> list[Event]:
        with self._changed:
            events = self._events.get(command_id, [])
            taken = [event for event in events if event["event"] not in LAST_WORDS]
            events.clear()
        return taken

    def send(self, **options: Any) -> list[Event]:
        return self.take(self._finish(self._start("send", options), "send", options))

    def join(self, member: str, **options: Any) -> int:
        """Start a consumer; what it receives is taken by the number given back."""
        options = {"name": member, **options}
        command_id = self._finish(self._start("consume", options), "consume", options)
        self.take(command_id)
        return command_id

    def leave(self, member: str) -> None:
        self.call("stop", name=member, inBackground=True)


@dataclass(slots=True)
class Member:
    """A running consumer."""

    name: str
    seat: Seat
    host: "Host"
    command_id: int


class Host:
    """A program, and the one thread that gives it commands."""

    def __init__(self, version: str, folder: Path, rebalance_ms: int) -> None:
        self.version = version
        launched = feature_shell.launch(default_cache(), f"java-{version}", folder)
        waiting = f"-Drocketmq.client.rebalance.waitInterval={rebalance_ms}"
        argv = (launched.argv[0], waiting, *launched.argv[1:])
        launched = dataclasses.replace(launched, argv=argv)
        self.program = Program(f"java-{version}", launched, folder)
        self.thread = ThreadPoolExecutor(1, thread_name_prefix=f"java-{version}")

    def stop(self) -> None:
        self.program.stop()
        self.thread.shutdown()


class JavaTraffic:
    """Everything the Java clients do; coroutines end soon after ``until``."""

    def __init__(
        self, namesrv: str, hosts: Sequence[Host], *, ledger: Ledger, plan: Plan, seed: int
    ) -> None:
        self._namesrv = namesrv
        self._hosts = hosts
        self._ledger = ledger
        self._plan = plan
        self._dice = random.Random(seed)
        self._members: list[Member] = []
        self._former: list[Member] = []  # may still be at work on what they had
        self._member_count = 0

    def sending(self, until: asyncio.Event) -> list[Coroutine[Any, Any, None]]:
        return [*(self._send_from(host, until) for host in self._hosts), self._churn(until)]

    def consuming(self, until: asyncio.Event) -> list[Coroutine[Any, Any, None]]:
        return [regularly(DRAIN_S, self._drain, until)]

    # --- producers

    async def _send_from(self, host: Host, until: asyncio.Event) -> None:
        turns = 0

        async def send() -> None:
            nonlocal turns
            kinds = (self._singles, self._orderly, self._batch, self._delayed, self._retried)
            topic, messages, options = kinds[turns % len(kinds)]()
            turns += 1
            await self._send(host, topic, messages, options)

        await regularly(SEND_S, send, until)

    def _singles(self) -> tuple[str, list[dict[str, Any]], dict[str, Any]]:
        return MIXED, self._messages(8), {"mode": self._dice.choice(["sync", "async"])}

    def _batch(self) -> tuple[str, list[dict[str, Any]], dict[str, Any]]:
        return MIXED, self._messages(10), {"mode": "batch"}

    def _orderly(self) -> tuple[str, list[dict[str, Any]], dict[str, Any]]:
        messages = self._messages(8)
        for message in messages:
            message["hashKey"] = f"shard-{self._dice.randrange(SHARDS)}"
        return ORDERLY, messages, {}

    def _delayed(self) -> tuple[str, list[dict[str, Any]], dict[str, Any]]:
        messages = self._messages(4)
        for message in messages:
            message["delayLevel"] = self._dice.randrange(1, 5)
        return DELAYED, messages, {}

    def _retried(self) -> tuple[str, list[dict[str, Any]], dict[str, Any]]:
        return RETRIED, self._messages(2), {}

    def _messages(self, count: int) -> list[dict[str, Any]]:
        keys = [self._ledger.next_key("j") for _ in range(count)]
        return [{"body": body(key, self._dice).decode(), "keys": key} for key in keys]

    async def _send(
        self,
        host: Host,
        topic: str,
        messages: Sequence[Mapping[str, Any]],
        options: Mapping[str, Any],
    ) -> None:
        target = {"namesrv": self._namesrv, "topic": topic, "timeoutMs": SEND_TIMEOUT_MS}
        loop = asyncio.get_running_loop()
        begin_ms = self._ledger.now_ms()
        events = await loop.run_in_executor(
            host.thread, lambda: host.program.send(messages=messages, **target, **options)
        )
        noted = set()
        for event in events:
            for step in range(len(messages) if options.get("mode") == "batch" else 1):
                message = messages[event["index"] + step]
                level = message.get("delayLevel", 0)
                delay_ms = LEVELS_S[level - 1] * 1000 if level else 0
                sent = self._sent(topic, message, event, step)
                self._ledger.sent(sent, delay_ms=delay_ms, begin_ms=begin_ms)
                noted.add(event["index"] + step)
        if len(noted) != len(messages):
            self._ledger.fault(f"java {host.version} told of {len(noted)} of {len(messages)} sends")

    def _sent(self, topic: str, message: Mapping[str, Any], event: Event, step: int) -> Sent:
        is_acknowledged = event["event"] == "sent"
        if not is_acknowledged:
            self._ledger.failed(f"send of Java to {topic}", event["error"])
        # What is delayed is acknowledged at a place of another topic.
        is_placed = is_acknowledged and "delayLevel" not in message
        return Sent(
            key_in(message["body"]),
            topic=topic,
            queue_id=event["queueId"] if is_placed else None,
            queue_offset=event["queueOffset"] + step if is_placed else None,
            is_acknowledged=is_acknowledged,
        )

    # --- consumers

    async def join_all(self) -> None:
        """Every seat is taken when this returns."""
        await asyncio.gather(*(self._join(host, seat) for host in self._hosts for seat in SEATS))

    async def _join(self, host: Host, seat: Seat) -> None:
        self._member_count += 1
        name = f"{seat.group}-{host.version}-{self._member_count}".replace(".", "_")
        begin_ms = self._ledger.now_ms()
        options = {"namesrv": self._namesrv, "topic": seat.topic, "group": seat.group}
        command_id = await asyncio.get_running_loop().run_in_executor(
            host.thread, lambda: host.program.join(name, **options, **seat.options)
        )
        self._members.append(Member(name, seat, host, command_id))
        self._ledger.disturbed(Cause.REBALANCE, seat.group, begin_ms)

    async def _churn(self, until: asyncio.Event) -> None:
        """One member after the other leaves, and another takes the seat a little later."""
        await unless(until, self._plan.churn_s)
        await regularly(self._plan.churn_s, self._replace, until)

    async def _replace(self) -> None:
        member = self._members.pop(0)
        begin_ms = self._ledger.now_ms()
        self._former.append(member)
        await asyncio.get_running_loop().run_in_executor(
            member.host.thread, lambda: member.host.program.leave(member.name)
        )
        self._ledger.disturbed(Cause.REBALANCE, member.seat.group, begin_ms)
        await asyncio.sleep(AWAY_S)
        await self._join(member.host, member.seat)
        self._ledger.counts["members replaced"] += 1

    async def _drain(self) -> None:
        for member in (*self._members, *self._former):
            for event in member.host.program.take(member.command_id):
                self._receive(member, event)

    def _receive(self, member: Member, event: Event) -> None:
        # An orderly consumer is never made to fail here: each handling is one of its own.
        receipt = Received(
            key_in(event["body"]),
            topic=event["topic"],
            queue_id=event["queueId"],
            queue_offset=event["queueOffset"],
            member=event["name"],
            begin_ms=event["beginUs"] / 1000,
            end_ms=event["endUs"] / 1000,
            attempt=event["reconsumeTimes"],
        )
        self._ledger.received(member.seat.group, receipt, is_done=event["outcome"] == "ok")


@contextlib.contextmanager
def hosts(folder: Path, rebalance_ms: int) -> Iterator[list[Host]]:
    """A program for each generation, ready for commands."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor() as pool:
        starting = [
            pool.submit(Host, version, folder / f"java-{version}", rebalance_ms)
            for version in JAVA_VERSIONS
        ]
        # One that cannot be started must not leave the other behind.
        concurrent.futures.wait(starting)
        for future in starting:
            if future.exception() is None:
                stack.callback(future.result().stop)
        yield [future.result() for future in starting]

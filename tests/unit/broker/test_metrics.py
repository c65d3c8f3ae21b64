"""How the numbers for Prometheus are come by."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from cometmq.broker import metrics
from cometmq.broker.metrics import BrokerMetrics, Disks, Lags, RequestMeter
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.remoting.channel import Channel
from cometmq.remoting.metrics import Registry
from cometmq.remoting.routes import Answer, Routes
from cometmq.store.files import DiskUsage
from tests.unit.broker.data_path import DataPath, sending
from tests.unit.broker.fake_channel import FakeChannel, request


class FakeConsumption:
    """Offsets by group and topic; each topic has as many queues as there are, or ``queues``."""

    def __init__(
        self, offsets: dict[tuple[str, str], dict[int, int]], queues: int | None = None
    ) -> None:
        self._offsets = offsets
        self._queues = queues

    def groups(self) -> list[str]:
        return list(dict.fromkeys(group for group, _ in self._offsets))

    def topics_of(self, group: str) -> list[tuple[str, int]]:
        return [
            (topic, len(queues) if self._queues is None else self._queues)
            for (name, topic), queues in self._offsets.items()
            if name == group
        ]

    def offsets_of(self, group: str, topic: str) -> dict[int, int]:
        return self._offsets[group, topic]


def lags(
    offsets: dict[tuple[str, str], dict[int, int]],
    *,
    end: int = 100,
    series_max: int = 10,
    queues: int | None = None,
) -> Lags:
    """Lags in queues that all end at ``end``."""
    consumption = FakeConsumption(offsets, queues)
    return Lags(consumption, lambda _topic, _queue: end, series_max=series_max)


def test_the_lag_of_a_group_is_the_sum_of_its_queues() -> None:
    found = lags({("billing", "orders"): {0: 90, 1: 95}, ("audit", "orders"): {0: 100}})

    list(found.steps())

    assert found.largest == {("orders", "billing"): 15, ("orders", "audit"): 0}
    assert found.total == 15


def test_a_queue_without_an_offset_lags_by_all_it_has() -> None:
    found = lags({("billing", "orders"): {1: 95}, ("new", "orders"): {}}, queues=2)

    list(found.steps())

    assert found.largest == {("orders", "billing"): 105, ("orders", "new"): 200}


def test_an_offset_beyond_the_end_is_no_negative_lag() -> None:
    """After a topic was deleted and made again."""
    found = lags({("billing", "orders"): {0: 500, 1: 99}})

    list(found.steps())

    assert found.total == 1


def test_only_the_largest_lags_are_shown_by_name() -> None:
    offsets = {(f"group-{number}", "orders"): {0: number} for number in range(100)}
    found = lags(offsets, series_max=2)

    list(found.steps())

    assert found.largest == {("orders", "group-0"): 100, ("orders", "group-1"): 99}
    assert found.total == sum(range(1, 101))


def test_lags_of_many_groups_are_looked_up_in_slices() -> None:
    # Each is a pair and a queue.
    count = metrics.SLICE_LOOKUPS + 1
    found = lags({(f"group-{number}", "orders"): {0: 0} for number in range(count)})

    assert len(list(found.steps())) == 2
    assert len(found.largest) == 10


def test_the_lag_in_many_queues_is_looked_up_in_slices() -> None:
    wide = dict.fromkeys(range(metrics.SLICE_LOOKUPS * 3), 99)
    found = lags({("billing", "orders"): wide})

    assert len(list(found.steps())) == 3
    assert found.largest == {("orders", "billing"): len(wide)}


def test_without_series_nothing_is_looked_up() -> None:
    found = lags({("billing", "orders"): {0: 0}}, series_max=0)

    list(found.steps())

    assert found.largest == {}
    assert found.total == 0


def test_a_disk_that_cannot_be_measured_is_left_out() -> None:
    def usage(path: Path) -> DiskUsage:
        if path == Path("/gone"):
            raise FileNotFoundError(path)
        return DiskUsage(1, 3)

    disks = Disks(["/gone", "/data"], usage)

    disks.measure()

    assert disks.usages == {"/data": DiskUsage(1, 3)}


def metered() -> tuple[Registry, RequestMeter, Routes]:
    registry, routes = Registry(), Routes()
    meter = RequestMeter(registry)

    def batch(channel: Channel, commands: Sequence[Command]) -> None:
        if commands[0].body == b"fail":
            raise RuntimeError("as asked for")
        for command in commands:
            channel.reply(command, Answer())

    routes.add_batch(RequestCode.SEND_MESSAGE_V2, batch)
    routes.add_batch(RequestCode.PULL_MESSAGE, batch)

    def usual(channel: Channel, commands: Sequence[Command], frames: list[bytes]) -> int:
        return sum(command.body == b"usual" for command in commands)

    routes.add_short_way(RequestCode.SEND_MESSAGE_V2, usual)
    routes.add(RequestCode.HEART_BEAT, lambda channel, command: Answer())
    meter.add_to(routes)
    return registry, meter, routes


def test_requests_are_counted_one_by_one_and_timed_by_read() -> None:
    registry, meter, routes = metered()

    sends = [request(RequestCode.SEND_MESSAGE_V2, opaque=number) for number in range(5)]
    replies = FakeChannel().ask(
        routes, *sends, request(RequestCode.PULL_MESSAGE), request(RequestCode.HEART_BEAT)
    )

    text = registry.expose()
    assert len(replies) == 7
    assert 'requests_total{kind="send"} 5\n' in text
    assert 'requests_total{kind="pull"} 1\n' in text
    assert 'requests_total{kind="other"} 1\n' in text
    assert 'request_seconds_count{kind="send"} 1\n' in text
    assert meter.times.put.count == 1
    assert meter.pull_count == 1


def test_what_takes_a_short_way_is_counted_and_timed_once() -> None:
    registry, _, routes = metered()

    FakeChannel().ask(
        routes, *(request(RequestCode.SEND_MESSAGE_V2, body=b"usual") for _ in range(3))
    )

    text = registry.expose()
    assert 'requests_total{kind="send"} 3\n' in text
    assert 'request_seconds_count{kind="send"} 1\n' in text


def test_a_handler_that_raises_is_counted_and_its_error_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry, _, routes = metered()

    (reply,) = FakeChannel().ask(routes, request(RequestCode.SEND_MESSAGE_V2, body=b"fail"))

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert 'requests_total{kind="send"} 1\n' in registry.expose()
    assert "as asked for" in caplog.text


def test_refusals_are_counted_by_request_and_reason() -> None:
    registry, meter, _ = metered()
    channel = FakeChannel()
    channel.on_refused = meter.on_refused
    send = request(RequestCode.SEND_MESSAGE_V2)

    channel.reply(send, Answer())
    channel.reply(send, Answer(ResponseCode.SYSTEM_BUSY))
    channel.reply(send, Answer(ResponseCode.SYSTEM_BUSY))
    # A client's own, passed on: there may be as many as there are numbers.
    channel.reply(request(RequestCode.HEART_BEAT), Answer(9_998))
    channel.reply(request(RequestCode.HEART_BEAT), Answer(9_999))

    text = registry.expose()
    assert 'refused_total{request="SEND_MESSAGE_V2",code="SYSTEM_BUSY"} 2\n' in text
    assert 'refused_total{request="HEART_BEAT",code="unknown"} 2\n' in text
    assert meter.failed_sends == 2


def test_flushes_are_timed(tmp_path: Path) -> None:
    registry = Registry()
    with DataPath(tmp_path) as path:
        BrokerMetrics(registry, lags({}), Disks([])).add_store(path.store)
        path.send_frames(sending())

        path.store.flush()

        assert "cometmq_broker_flush_seconds_count 1\n" in registry.expose()
        assert "cometmq_broker_is_writable 1\n" in registry.expose()


def test_lags_and_disks_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "WATCH_SECONDS", 3600)
    found = lags({("billing", "orders"): {0: 40}})
    disks = Disks(["/data"], lambda _: DiskUsage(1, 1))

    async def watch() -> None:
        running = asyncio.ensure_future(BrokerMetrics(Registry(), found, disks).run())
        async with asyncio.timeout(10):
            while not found.total:  # it is told by nobody
                await asyncio.sleep(0)
        running.cancel()

    asyncio.run(watch())

    assert found.total == 60
    assert disks.usages == {"/data": DiskUsage(1, 1)}

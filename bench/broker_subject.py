"""Brokers under test, each with a name server of its own, and the generator that loads them.

All get the same settings; their topics are in their store before they start. Apache's run in JVMs
that may get as fast as they can.
"""

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.capacity_frames import QUEUES, Load, encoded, pull_header, requests
from bench.load import connect, read_frame
from bench.memory import memory_mb
from cometmq.codec import command
from cometmq.codec.codes import RequestCode
from cometmq.codec.command import Command, Serialization
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.offsets import GetMaxOffset
from tests.interop import java, maven, requirements
from tests.interop.apache import ApacheNameServer, cluster_info, home
from tests.interop.cache import default_cache
from tests.interop.commands import tail
from tests.interop.nameserver import OurNameServer
from tests.interop.ports import LOOPBACK, free_port_triple
from tests.interop.processes import Process, ProcessDiedError, Stoppable

OURS, PURE, APACHE, APACHE_LATER = "ours", "ours, plain", "Apache 4.9.7", "Apache 5.5.0"
SUBJECTS = (OURS, PURE, APACHE, APACHE_LATER)

HEAP_MB = 2048
START_TIMEOUT_S = 60.0
START_POLL_S = 0.002
REGISTERED_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 60.0
SETTLED_TIMEOUT_S = 60.0
SETTLED_POLL_S = 0.01
END_TIMEOUT_S = 5.0

SEND_TOPIC = "bench-send"
JSON = Serialization.JSON

SETTINGS: Mapping[str, str] = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerId": "0",
    "brokerIP1": LOOPBACK,
    "brokerRole": "ASYNC_MASTER",
    "flushDiskType": "ASYNC_FLUSH",
    "defaultTopicQueueNums": str(QUEUES),
    "autoCreateTopicEnable": "true",
    "autoCreateSubscriptionGroup": "true",
    "fileReservedTime": "87600",
    # A developer's disk may well be fuller than the 75 per cent at which a broker starts to clean.
    "diskMaxUsedSpaceRatio": "95",
    # A benchmark wants its messages stored late rather than refused.
    "waitTimeMillsInSendQueue": "10000",
    "waitTimeMillsInPullQueue": "10000",
    "osPageCacheBusyTimeOutMills": "10000",
}


class SubjectFailed(Exception):
    """A broker or the generator did not do what was asked; the message ends with its last words."""


class Place(NamedTuple):
    """Where brokers run and with what: those of different places are different processes."""

    name: str
    topics: tuple[str, ...]
    settings: Mapping[str, str]


class Subject(Stoppable):
    """A running broker; ``first_ack_seconds`` from its process's start to its first message."""

    def __init__(self, name: str, folder: Path, place: Place, namesrv: str) -> None:
        self.name = name
        self.namesrv = namesrv
        self.is_jvm = name.startswith("Apache")
        self._port = free_port_triple()
        self.address = f"{LOOPBACK}:{self._port}"
        conf = self._prepare(folder, place)
        began = time.perf_counter()
        self.process = _started(name, folder, conf)
        try:
            self._wait_for_ack()
            self.first_ack_seconds = time.perf_counter() - began
        except BaseException:
            self.process.kill()
            raise

    @property
    def pid(self) -> int:
        return self.process.pid

    def _prepare(self, folder: Path, place: Place) -> Path:
        config = home(folder) / "store" / "config"
        config.mkdir(parents=True)
        (config / "topics.json").write_text(topics_document(place.topics))
        settings = {
            "listenPort": str(self._port),
            "namesrvAddr": self.namesrv,
            "storePathRootDir": str(folder / "store"),
            "storePathCommitLog": str(folder / "store" / "commitlog"),
            **SETTINGS,
            **place.settings,
        }
        if not self.is_jvm:
            settings["bindAddress"] = LOOPBACK
        conf = folder / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return conf

    def _wait_for_ack(self) -> None:
        """Try until the first message is taken; refusals while it starts are no failure."""
        frame = bytes(requests(Load("send", "json", 1, 1, 128), SEND_TOPIC).run(0, 1))
        deadline = time.monotonic() + START_TIMEOUT_S
        said = "nobody listens"
        while time.monotonic() < deadline:
            try:
                with connect(self.address) as connection:
                    answer = exchange(connection, frame)
            except OSError as failure:
                said = str(failure)
            else:
                if answer.code == 0:
                    return
                said = f"{answer.code} {answer.remark}"
            if not self.process.is_alive():
                raise ProcessDiedError(self.name, -1, tail(self.process.log()))
            time.sleep(START_POLL_S)
        raise SubjectFailed(f"{self.name} took no message ({said}):\n{tail(self.process.log())}")

    def wait_until_registered(self) -> None:
        deadline = time.monotonic() + REGISTERED_TIMEOUT_S
        while self.address.encode() not in cluster_info(self.namesrv):
            if time.monotonic() >= deadline:
                raise SubjectFailed(f"{self.name} is still unknown to its name server")
            time.sleep(0.05)

    def max_offsets(self, topic: str) -> list[int]:
        """The end of each queue."""
        frames = [
            encoded(RequestCode.GET_MAX_OFFSET, GetMaxOffset(topic, number), number, JSON)
            for number in range(QUEUES)
        ]
        offsets = dict.fromkeys(range(QUEUES), 0)
        with connect(self.address) as connection:
            # All at once: it is also asked while the broker is busy, where each answer takes time.
            connection.sendall(b"".join(frames))
            for _ in frames:
                answer = read_answer(connection)
                if answer.code != 0:
                    raise SubjectFailed(f"{self.name}: {topic}: {answer.code} {answer.remark}")
                offsets[answer.opaque] = int(answer.ext_fields["offset"])
        return list(offsets.values())

    def message_count(self, topic: str) -> int:
        return sum(self.max_offsets(topic))

    def settled_count(self, topic: str) -> int:
        """All that was sent before, and one message more.

        Queues follow the log some time behind, in its order: when they show a message that is sent
        now, they show all before it.
        """
        frame = requests(Load("send", "json", 1, 1, 16), topic).run(0, 1)
        with connect(self.address) as connection:
            answer = exchange(connection, bytes(frame))
        if answer.code != 0:
            raise SubjectFailed(f"{self.name}: {topic}: {answer.code} {answer.remark}")
        queue_id, offset = (int(answer.ext_fields[name]) for name in ("queueId", "queueOffset"))
        deadline = time.monotonic() + SETTLED_TIMEOUT_S
        while (offsets := self.max_offsets(topic))[queue_id] <= offset:
            if time.monotonic() >= deadline:
                raise SubjectFailed(f"{self.name}: {topic} is still behind the log")
            time.sleep(SETTLED_POLL_S)
        return sum(offsets)

    def record_bytes(self, topic: str) -> float:
        """Bytes of a message as consumers get it, from the first ones of the first queue."""
        with connect(self.address) as connection:
            answer = ask(connection, RequestCode.PULL_MESSAGE, pull_header(topic, 0, 0))
        size = int.from_bytes(answer.body[:4], "big")
        if answer.code != 0 or not size:
            raise SubjectFailed(f"{self.name}: {topic}: {answer.code} {answer.remark}")
        return size

    def memory_mb(self) -> dict[str, float]:
        """Anonymous and whole resident memory."""
        memory = memory_mb(self.pid)
        return {"anonymous_mb": memory.anonymous, "resident_mb": memory.resident}

    def stop(self) -> None:
        # A polite stop takes some of them ten seconds and saves a store nobody will open.
        self.process.kill()


def _started(name: str, folder: Path, conf: Path) -> Process:
    if name in (OURS, PURE):
        argv = [sys.executable, "-m", "cometmq", "broker", "-c", str(conf)]
        pure = {"COMETMQ_PURE": "1" if name == PURE else "0"}
        return Process("broker", argv, folder=folder, env={"HOME": str(folder), **pure})
    requirements.need("java")
    version = name.removeprefix("Apache ")
    argv = java.command(
        maven.class_path(default_cache(), f"servers-{version}"),
        "org.apache.rocketmq.broker.BrokerStartup",
        ["-c", str(conf)],
        home=folder,
        heap_mb=HEAP_MB,
        is_short_lived=False,
    )
    return Process("broker", argv, folder=folder, env={"ROCKETMQ_HOME": str(folder)})


def name_server(name: str, folder: Path) -> ApacheNameServer | OurNameServer:
    """Each broker has one of its own making."""
    if name in (OURS, PURE):
        return OurNameServer(folder)
    version = name.removeprefix("Apache ")
    return ApacheNameServer(default_cache(), version, folder, is_short_lived=False)


def topics_document(names: Sequence[str], queues: int = QUEUES) -> str:
    """A ``topics.json`` in the form all releases read."""
    table = {
        name: {
            "order": False, "perm": 6, "readQueueNums": queues, "writeQueueNums": queues,
            "topicFilterType": "SINGLE_TAG", "topicName": name, "topicSysFlag": 0,
        }
        for name in names
    }  # fmt: skip
    version = {"counter": 1, "timestamp": 1_700_000_000_000}
    return json.dumps({"dataVersion": version, "topicConfigTable": table})


def ask(connection: socket.socket, code: RequestCode, header: Header) -> Command:
    return exchange(connection, encoded(code, header, 1, JSON))


def exchange(connection: socket.socket, frame: bytes) -> Command:
    connection.sendall(frame)
    return read_answer(connection)


def read_answer(connection: socket.socket) -> Command:
    return command.decode_frames(read_frame(connection))[0][0]


class GeneratorProcess(Stoppable):
    """The capacity generator in a process of its own, so that nothing else runs in it."""

    def __init__(self) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "bench.capacity"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "COMETMQ_PURE": "0"},
            start_new_session=True,
        )

    def load(
        self, subject: "Subject | Sink", load: Load, topic: str, *, seconds: float
    ) -> dict[str, float]:
        """Load a subject for so long; the figures of ``bench.capacity``."""
        asked = {
            "address": subject.address, "pid": subject.pid, "load": load._asdict(),
            "topic": topic, "seconds": seconds, "settle_seconds": min(0.2, seconds / 4),
        }  # fmt: skip
        answer = self._ask(asked, ANSWER_TIMEOUT_S + seconds)
        if "error" in answer:
            raise SubjectFailed(f"{subject.name}, {load}: {answer['error']}")
        return answer

    def _ask(self, asked: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        stdin, stdout = self._popen.stdin, self._popen.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(asked).encode() + b"\n")
        stdin.flush()
        ready, _, _ = select.select([stdout], [], [], timeout_s)
        text = stdout.readline() if ready else b""
        if not text:
            raise SubjectFailed("the generator gave no answer; its last words are above")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def stop(self) -> None:
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died already, and was told of
            self._popen.stdin.close()
        try:
            self._popen.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait(END_TIMEOUT_S)


class Sink(Stoppable):
    """A running ``bench.capacity_sink``: whatever is faster than a load on it cannot be seen."""

    name = "the sink"

    def __init__(self, answer_bytes: int) -> None:
        argv = [sys.executable, "-m", "bench.capacity_sink", str(answer_bytes)]
        self._popen = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
        assert self._popen.stdout is not None
        self.address = f"{LOOPBACK}:{int(self._popen.stdout.readline())}"

    @property
    def pid(self) -> int:
        return self._popen.pid

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._popen.kill()
        self._popen.wait(END_TIMEOUT_S)

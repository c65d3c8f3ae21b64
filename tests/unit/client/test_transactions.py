"""Transactions against a broker that answers what the test told it to."""

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from cometmq.client import transactions
from cometmq.client.client import Client
from cometmq.client.core.message import Message
from cometmq.client.core.results import LocalState, SendResult, SendStatus
from cometmq.client.hooks import SendContext, TransactionContext
from cometmq.client.transactions import REMARK_LENGTH_MAX
from cometmq.codec import bodies, core
from cometmq.codec.bodies.clients import HeartbeatData
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.send import SendMessageResponse
from cometmq.codec.headers.transaction import CheckTransactionState, EndTransaction
from cometmq.codec.message_id import encode_offset_id
from cometmq.codec.properties import encode as encode_properties
from cometmq.codec.record import MAGIC_V1, assemble, pack_host, record_bytes
from cometmq.codec.sysflag import TransactionType, transaction_type
from cometmq.errors import AlreadyExists, InvalidArgument, NotRunning, SendFailed
from cometmq.remoting.routes import Answer
from tests.unit.client.kit import Asked, FakeCluster, connected, refused

HOST = pack_host("10.0.1.1", 10911)
END = RequestCode.END_TRANSACTION


def half_stored(code: int = ResponseCode.SUCCESS, transaction_id: str | None = "TX") -> Any:
    """A broker that has stored a half message at byte 4096, the seventh of its queue."""

    def answer(asked: Asked) -> Answer:
        offset_id = encode_offset_id(HOST, 4_096)
        header = SendMessageResponse(offset_id, asked.send.queue_id, 7, transaction_id)
        return Answer(code, header)

    return answer


def never(_: object) -> LocalState:
    raise AssertionError("nobody should ask")


def always(state: LocalState | None) -> Callable[[object], LocalState | None]:
    return lambda _: state


@contextlib.asynccontextmanager
async def scene(**options: Any) -> AsyncIterator[tuple[FakeCluster, Client]]:
    """A broker that takes half messages, and a client of it."""
    async with FakeCluster() as cluster:
        cluster.create("orders")
        cluster.create("ns%orders")
        cluster.a.on(RequestCode.SEND_MESSAGE_V2, half_stored())
        cluster.a.on(END, None)
        async with connected(cluster, **options) as client:
            yield cluster, client


async def ended(cluster: FakeCluster, count: int = 1) -> EndTransaction:
    """What the broker was told last."""
    told = await cluster.a.until(END, count)
    assert told[-1].command.is_oneway
    return EndTransaction.from_ext(told[-1].command.ext_fields)


def half_message(**properties: str) -> bytes:
    """A record as brokers send it."""
    own = {"UNIQ_KEY": "ID", "PGROUP": "payers", "TRAN_MSG": "true"}
    raw, body, topic = encode_properties(own | properties).encode(), b"half", b"orders"
    size = record_bytes(len(body), len(topic), len(raw), 0)
    head = (size, MAGIC_V1, topic, body, len(body), raw)
    return assemble(*head, 0, 9, 8_192, 1_000, 900, HOST, HOST, 0, 0, 0, 0)


async def ask_back(cluster: FakeCluster, **properties: str) -> None:
    """Ask the producer how a transaction of its group ended."""
    (known, *_) = await cluster.a.until(RequestCode.HEART_BEAT)
    known.channel.oneway(
        RequestCode.CHECK_TRANSACTION_STATE,
        CheckTransactionState(9, 8_192, "ID", "TX"),
        half_message(**properties),
    )


# --- sending


@pytest.mark.parametrize("state", LocalState)
async def test_the_broker_is_told_how_the_local_transaction_ended(state: LocalState) -> None:
    async with scene() as (cluster, client):
        producer = client.transaction_producer("payers", never)

        result = await producer.send("orders", b"paid", local=always(state), tag="a", keys="k")

        (sent,) = cluster.sends
        assert sent.properties["TRAN_MSG"] == "true"
        assert (sent.properties["PGROUP"], sent.send.producer_group) == ("payers", "payers")
        assert transaction_type(sent.send.sys_flag) is TransactionType.PREPARED
        header = await ended(cluster)
        assert header == EndTransaction(
            "payers", 7, 4_096, state.value, result.sent.message_id, None, "TX", "orders"
        )
        assert result.state is state


async def test_the_local_transaction_learns_where_its_message_is() -> None:
    async with scene() as (_, client):
        producer = client.transaction_producer("payers", never)
        seen: list[SendResult] = []

        def local(sent: SendResult) -> LocalState:
            seen.append(sent)
            return LocalState.COMMIT

        result = await producer.send("orders", b"paid", local=local)

        assert seen == [result.sent]
        assert (seen[0].transaction_id, seen[0].queue.topic) == ("TX", "orders")


async def test_a_plain_function_runs_on_a_thread_and_a_coroutine_on_the_loop() -> None:
    async with scene() as (_, client):
        producer = client.transaction_producer("payers", never)
        threads: list[threading.Thread] = []

        def plain(_: SendResult) -> LocalState:
            threads.append(threading.current_thread())
            return LocalState.COMMIT

        async def coroutine(_: SendResult) -> LocalState:
            threads.append(threading.current_thread())
            return LocalState.COMMIT

        results = [
            await producer.send("orders", b"paid", local=local)
            for local in (plain, coroutine, lambda sent: coroutine(sent))
        ]

        assert [result.state for result in results] == [LocalState.COMMIT] * 3
        main = threading.current_thread()
        assert [thread is main for thread in threads] == [False, True, True]


@pytest.mark.parametrize("answer", [None, True, "COMMIT"])
async def test_what_is_no_state_is_unknown(answer: Any) -> None:
    async with scene() as (cluster, client):
        producer = client.transaction_producer("payers", never)

        result = await producer.send("orders", b"paid", local=always(answer))

        assert result.state is LocalState.UNKNOWN
        assert (await ended(cluster)).commit_or_rollback == 0


async def test_a_local_transaction_that_raises_is_unknown() -> None:
    async with scene() as (cluster, client):
        producer = client.transaction_producer("payers", never)

        result = await producer.send("orders", b"paid", local=never)

        assert result.state is LocalState.UNKNOWN
        assert (await ended(cluster)).commit_or_rollback == 0


async def test_a_local_transaction_in_which_something_was_cancelled_is_unknown() -> None:
    async with scene() as (cluster, client):
        producer = client.transaction_producer("payers", never)

        async def local(_: object) -> LocalState:
            raise asyncio.CancelledError

        result = await producer.send("orders", b"paid", local=local)

        assert result.state is LocalState.UNKNOWN
        assert (await ended(cluster)).commit_or_rollback == 0


async def test_who_is_cancelled_in_a_local_transaction_is_cancelled() -> None:
    """The broker asks what became of it."""
    async with scene() as (cluster, client):
        producer = client.transaction_producer("payers", never)
        has_begun = asyncio.Event()

        async def local(_: object) -> LocalState:
            has_begun.set()
            await asyncio.Event().wait()
            return LocalState.COMMIT

        sending = asyncio.create_task(producer.send("orders", b"paid", local=local))
        await has_begun.wait()
        sending.cancel()

        with pytest.raises(asyncio.CancelledError):
            await sending
        assert cluster.a.questions(END) == []


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
async def test_a_half_message_that_is_not_safe_is_rolled_back_and_nothing_runs(
    code: ResponseCode, status: SendStatus
) -> None:
    async with scene() as (cluster, client):
        cluster.a.on(RequestCode.SEND_MESSAGE_V2, half_stored(code))
        producer = client.transaction_producer("payers", never)
        ran: list[object] = []

        result = await producer.send("orders", b"paid", local=ran.append)

        assert (result.sent.status, result.state, ran) == (status, LocalState.ROLLBACK, [])
        assert (await ended(cluster)).commit_or_rollback == LocalState.ROLLBACK.value


async def test_a_send_that_fails_raises_and_nothing_runs() -> None:
    async with scene() as (cluster, client):
        cluster.a.on(RequestCode.SEND_MESSAGE_V2, refused(ResponseCode.MESSAGE_ILLEGAL))
        producer = client.transaction_producer("payers", never)
        ran: list[object] = []

        with pytest.raises(SendFailed):
            await producer.send("orders", b"paid", local=ran.append)

        assert ran == []
        assert cluster.a.questions(END) == []


async def test_an_old_broker_that_does_not_say_the_transaction_id() -> None:
    async with scene() as (cluster, client):
        cluster.a.on(RequestCode.SEND_MESSAGE_V2, half_stored(transaction_id=None))
        producer = client.transaction_producer("payers", never)

        result = await producer.send("orders", b"paid", local=always(LocalState.COMMIT))

        assert result.sent.transaction_id == result.sent.message_id
        assert (await ended(cluster)).transaction_id == result.sent.message_id


async def test_an_end_that_cannot_be_told_changes_nothing() -> None:
    async with scene() as (cluster, client):
        cluster.a.on(
            RequestCode.SEND_MESSAGE_V2, Answer(header=SendMessageResponse("odd", 0, 7, "TX"))
        )
        producer = client.transaction_producer("payers", never)

        result = await producer.send("orders", b"paid", local=always(LocalState.COMMIT))

        assert result.state is LocalState.COMMIT
        assert cluster.a.questions(END) == []


async def test_groups_and_topics_carry_the_namespace() -> None:
    async with scene(namespace="ns") as (cluster, client):
        producer = client.transaction_producer("payers", never)

        result = await producer.send("orders", b"paid", local=always(LocalState.COMMIT))

        assert cluster.sends[0].properties["PGROUP"] == "ns%payers"
        header = await ended(cluster)
        assert (header.producer_group, header.topic) == ("ns%payers", "ns%orders")
        assert result.sent.queue.topic == "orders"


async def test_callbacks_must_be_functions() -> None:
    async with scene() as (_, client):
        callback: Any = "soon"
        producer = client.transaction_producer("payers", never)

        with pytest.raises(InvalidArgument, match="check must be a function"):
            client.transaction_producer("others", callback)
        with pytest.raises(InvalidArgument, match="local must be a function"):
            await producer.send("orders", b"paid", local=callback)


async def test_a_group_has_one_producer() -> None:
    async with scene() as (_, client):
        client.transaction_producer("payers", never)

        with pytest.raises(AlreadyExists):
            client.producer("payers")


# --- checks


@pytest.mark.parametrize("state", LocalState)
async def test_a_broker_that_asks_is_told(state: LocalState) -> None:
    async with scene() as (cluster, client):
        asked: list[Message[bytes]] = []

        def check(message: Message[bytes]) -> LocalState:
            asked.append(message)
            return state

        client.transaction_producer("payers", check, topics=["orders"])
        await ask_back(cluster, TAGS="a")
        header = await ended(cluster)

        assert header == EndTransaction("payers", 9, 8_192, state.value, "ID", True, "TX", "orders")
        (message,) = asked
        assert (message.topic, message.value, message.tag) == ("orders", b"half", "a")
        assert (message.message_id, message.transaction_id) == ("ID", "ID")


async def test_a_check_may_be_a_coroutine_and_values_are_decoded() -> None:
    async with scene() as (cluster, client):
        values: list[str] = []

        async def check(message: Message[str]) -> LocalState:
            values.append(message.value)
            return LocalState.COMMIT

        client.transaction_producer("payers", check, codec=str, topics=["orders"])
        await ask_back(cluster)
        await ended(cluster)

        assert values == ["half"]


async def test_a_check_that_raises_leaves_the_message_and_the_next_is_answered() -> None:
    async with scene() as (cluster, client):
        problems = [ValueError("no ledger")]

        def check(_: object) -> LocalState:
            if problems:
                raise problems.pop()
            return LocalState.COMMIT

        client.transaction_producer("payers", check, topics=["orders"])
        await ask_back(cluster)
        first = await ended(cluster)
        await ask_back(cluster)
        second = await ended(cluster, 2)

        assert (first.commit_or_rollback, second.commit_or_rollback) == (0, 8)
        remarks = [told.command.remark for told in cluster.a.questions(END)]
        assert remarks == ["ValueError: no ledger", None]


async def test_the_broker_is_told_why_a_local_transaction_failed_in_a_few_words() -> None:
    async with scene() as (cluster, client):
        producer = client.transaction_producer("payers", never)

        def local(_: object) -> LocalState:
            raise ValueError("no ledger" * 1_000)

        await producer.send("orders", b"paid", local=local)
        await ended(cluster)

        (told,) = cluster.a.questions(END)
        assert told.command.remark == ("ValueError: " + "no ledger" * 1_000)[:REMARK_LENGTH_MAX]


class Panic(BaseException):
    """What some native libraries raise: no ``Exception``, and no wish to end the program."""


@pytest.mark.parametrize("error", [asyncio.CancelledError(), Panic()])
async def test_whatever_a_check_raises_the_next_is_answered(error: BaseException) -> None:
    """Something that it waited for may have been cancelled; nobody has cancelled the checks."""
    async with scene() as (cluster, client):
        problems = [error]

        async def check(_: object) -> LocalState:
            if problems:
                raise problems.pop()
            return LocalState.COMMIT

        client.transaction_producer("payers", check, topics=["orders"])
        await ask_back(cluster)
        first = await ended(cluster)
        await ask_back(cluster)
        second = await ended(cluster, 2)

        assert (first.commit_or_rollback, second.commit_or_rollback) == (0, 8)


async def test_a_check_that_wants_to_end_its_thread_does_not_end_the_loop() -> None:
    async with scene() as (cluster, client):

        def check(_: object) -> LocalState:
            sys.exit(3)

        client.transaction_producer("payers", check, topics=["orders"])
        await ask_back(cluster)

        assert (await ended(cluster)).commit_or_rollback == 0


async def test_checks_run_one_after_the_other_and_only_so_many_wait() -> None:
    async with scene() as (cluster, client):
        gate, running = asyncio.Event(), 0

        async def check(_: object) -> LocalState:
            nonlocal running
            running += 1
            assert running == 1
            await gate.wait()
            running -= 1
            return LocalState.COMMIT

        client.transaction_producer("payers", check, topics=["orders"])
        await ask_back(cluster)
        while not running:
            await asyncio.sleep(0)
        member = client._require().main.producers["payers"]
        half = core.parse_records(half_message())[0]
        for _ in range(transactions.CHECKS_MAX + 5):
            member.check_transaction(cluster.a.address, CheckTransactionState(9, 8_192), half)
        gate.set()
        await cluster.a.until(END, 1 + transactions.CHECKS_MAX)
        await asyncio.sleep(0)

        assert len(cluster.a.questions(END)) == 1 + transactions.CHECKS_MAX


async def test_checks_that_are_passed_over_are_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scene() as (cluster, client):
        client.transaction_producer("payers", always(None))
        member = client._require().main.producers["payers"]
        half = core.parse_records(half_message())[0]

        for _ in range(transactions.CHECKS_MAX + 5):
            member.check_transaction(cluster.a.address, CheckTransactionState(9, 8_192), half)

        assert caplog.text.count("passed over") == 1


@pytest.mark.parametrize(("topics", "words"), [("orders", "no list"), (["or ders"], "not allowed")])
async def test_topics_are_a_list_of_names(topics: Any, words: str) -> None:
    async with scene() as (_, client):
        with pytest.raises(InvalidArgument, match=words):
            client.transaction_producer("payers", never, topics=topics)

        client.transaction_producer("payers", never)  # nothing is left of the other one


async def test_no_time_at_all_is_refused() -> None:
    async with scene() as (_, client):
        producer = client.transaction_producer("payers", never)

        with pytest.raises(InvalidArgument, match="0 ms are no time"):
            await producer.send("orders", b"x", local=never, timeout_ms=0)


async def test_brokers_of_named_topics_know_the_producer_before_anything_is_sent() -> None:
    async with scene() as (cluster, client):
        client.transaction_producer("payers", never, topics=["orders"])

        while True:
            (*_, last) = await cluster.a.until(RequestCode.HEART_BEAT)
            groups = bodies.decode(HeartbeatData, last.body).producer_data_set
            if "payers" in {group.group_name for group in groups}:
                break
            await asyncio.sleep(0)

        assert cluster.sends == []


# --- hooks


class Spy:
    """Sees sends and ends."""

    def __init__(self) -> None:
        self.sends: list[SendContext] = []
        self.ends: list[TransactionContext] = []

    def before_send(self, context: SendContext) -> None:
        self.sends.append(context)

    def after_send(self, context: SendContext) -> None:
        """Seen already."""

    def after_end(self, context: TransactionContext) -> None:
        self.ends.append(context)
        raise ValueError("hooks may fail")


async def test_hooks_see_the_half_message_and_both_kinds_of_ends() -> None:
    async with scene() as (cluster, client):
        spy = Spy()
        check = always(LocalState.ROLLBACK)
        producer = client.transaction_producer("payers", check, hooks=[spy], topics=["orders"])

        await producer.send("orders", b"paid", local=always(LocalState.COMMIT), keys=["k1", "k2"])
        await ask_back(cluster)
        await ended(cluster, 2)
        await asyncio.sleep(0)

        assert [(context.mode, context.kind) for context in spy.sends] == [("transaction", "half")]
        sent, checked = spy.ends
        assert (sent.state, sent.is_from_check) == (LocalState.COMMIT, False)
        assert (sent.group, sent.topic, sent.keys) == ("payers", "orders", ("k1", "k2"))
        assert (sent.transaction_id, sent.address) == ("TX", cluster.a.address)
        assert (checked.state, checked.is_from_check) == (LocalState.ROLLBACK, True)
        assert (checked.message_id, checked.address) == ("ID", cluster.a.address)


# --- the end


async def test_closing_lets_transactions_under_way_end() -> None:
    async with scene() as (cluster, client):
        producer = client.transaction_producer("payers", never)
        begun, gate = asyncio.Event(), asyncio.Event()

        async def local(_: SendResult) -> LocalState:
            begun.set()
            await gate.wait()
            return LocalState.COMMIT

        sending = asyncio.ensure_future(producer.send("orders", b"paid", local=local))
        await begun.wait()
        closing = asyncio.ensure_future(producer.close())
        await asyncio.sleep(0)
        assert not closing.done()
        gate.set()
        await closing

        assert (await sending).state is LocalState.COMMIT
        assert (await ended(cluster)).commit_or_rollback == 8


async def test_a_client_waits_for_a_producer_that_is_being_closed() -> None:
    async with scene() as (cluster, client):
        producer = client.transaction_producer("payers", never)
        begun, gate = asyncio.Event(), asyncio.Event()

        async def local(_: SendResult) -> LocalState:
            begun.set()
            await gate.wait()
            return LocalState.COMMIT

        sending = asyncio.ensure_future(producer.send("orders", b"paid", local=local))
        await begun.wait()
        closing = asyncio.ensure_future(producer.close())
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.02, gate.set)
        await client.close()

        assert (await sending).state is LocalState.COMMIT
        assert len(cluster.a.questions(END)) == 1
        await closing


async def test_a_close_that_is_cancelled_still_leaves_the_group() -> None:
    async with scene() as (cluster, client):
        producer = client.transaction_producer("payers", never)
        begun = asyncio.Event()

        async def local(_: SendResult) -> LocalState:
            begun.set()
            await asyncio.Event().wait()
            return LocalState.COMMIT

        sending = asyncio.ensure_future(producer.send("orders", b"paid", local=local))
        await begun.wait()
        closing = asyncio.ensure_future(producer.close())
        await asyncio.sleep(0)

        closing.cancel()
        await asyncio.wait((closing,))

        assert cluster.a.questions(RequestCode.UNREGISTER_CLIENT)
        client.transaction_producer("payers", never)
        sending.cancel()
        assert cluster.a.questions(RequestCode.UNREGISTER_CLIENT)


async def test_a_closed_producer_takes_nothing_and_may_be_closed_again() -> None:
    async with scene() as (_, client):
        async with client.transaction_producer("payers", never) as producer:
            pass

        await producer.close()

        with pytest.raises(NotRunning):
            await producer.send("orders", b"paid", local=always(LocalState.COMMIT))
        client.transaction_producer("payers", never)

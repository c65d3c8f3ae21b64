import inspect
import pickle
import re

import pytest

from cometmq import errors
from cometmq.errors import (
    AlreadyExists,
    Ambiguous,
    CometError,
    ConnectionLost,
    DamagedStore,
    DecisionError,
    DecodeError,
    EncodeError,
    ForeignStore,
    InvalidArgument,
    LocalProtocolError,
    MissingDependency,
    NoReply,
    NoRoute,
    NotFound,
    NotRunning,
    OffsetOutOfRange,
    PartlyDone,
    Refused,
    RemoteProtocolError,
    RequestTimeout,
    SendFailed,
    SettingsError,
    StoreLocked,
    TooManyRequests,
    Unreachable,
    Unsupported,
)

SAMPLES = [
    LocalProtocolError("topic 'x' is too long"),
    RemoteProtocolError("frame of 5 bytes"),
    InvalidArgument("topic", "topic 'a b' has a blank", "leave it out"),
    SettingsError("listenPort", "'abc' is not an integer", "use an integer"),
    MissingDependency("lz4", "compress", "reading LZ4 bodies"),
    StoreLocked("/data/log", is_log=True),
    DamagedStore("/data/store/commitlog/00", "file has 7 bytes", "restore it from a copy"),
    ForeignStore("/data/store/dledger-n0", "written by DLedger"),
    OffsetOutOfRange("/data/store", 500, 0, 400),
    NotFound("topic", "orders", "create it"),
    AlreadyExists("topic", "orders", "change it instead"),
    Ambiguous("cluster", ("east", "west")),
    NoRoute("orders", (("h:9876", "code 17"),), "create the topic"),
    NotRunning("this client", "is closed", "make a new one"),
    Unreachable("127.0.0.1:9876", "connection refused"),
    Refused("h:1", "DELETE_TOPIC_IN_BROKER", 1, "disk is full", "make room"),
    Unsupported("static topics", "h:1", "RocketMQ 4.9.7", "use 5.0 or later"),
    PartlyDone("creating topic 'orders'", ("broker-a",), (("broker-b", "it is down"),)),
    SendFailed("orders", 3, 3000, ("a", "b", "a"), 10002, "no answer", True),
    EncodeError("set", "JSON has no sets", "send a list"),
    DecodeError("7F00", "Order", "not JSON", "read the body"),
    DecisionError("7F00", "retry", "it was acknowledged already", "decide once"),
    RequestTimeout("h:1", 3000),
    NoReply("orders", "7F00", 3000),
    ConnectionLost("h:1", "closed by the peer"),
    TooManyRequests("h:1", 10),
]


def exception_classes() -> dict[str, type[CometError]]:
    found = inspect.getmembers(errors, inspect.isclass)
    return {name: kind for name, kind in found if issubclass(kind, CometError)}


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    drawn: list[str] = []
    depths: dict[str, int] = {}
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"    ([│├└─ ]*)(\w+)(?:   .*)?$", line):
            drawn.append(match[2])
            depths[match[2]] = len(match[1]) // 4

    classes = exception_classes()

    assert sorted(drawn) == sorted(classes)
    assert depths == {name: kind.__mro__.index(CometError) for name, kind in classes.items()}


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_a_process_boundary(error: CometError) -> None:
    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_every_kind_of_error_has_a_sample_here() -> None:
    kinds = set(exception_classes().values())
    leaves = {kind for kind in kinds if not kinds.intersection(kind.__subclasses__())}

    assert {type(error) for error in SAMPLES} == leaves


def test_the_sentence_is_the_fact_and_then_the_next_step() -> None:
    assert str(SettingsError("listenPort", "'abc' is not an integer", "use an integer")) == (
        "setting 'listenPort': 'abc' is not an integer; use an integer"
    )
    assert str(MissingDependency("lz4", "compress", "reading LZ4 bodies")) == (
        "reading LZ4 bodies needs the package 'lz4', which is not installed; "
        "install it with: pip install 'cometmq[compress]'"
    )
    assert str(NotFound("topic", "orders")) == "no such topic: 'orders'"
    assert str(Unreachable("h:1", "timed out")) == "cannot reach h:1: timed out"
    assert str(Refused("h:1", "SEND_MESSAGE", 16, "no permission")) == (
        "h:1 refuses SEND_MESSAGE with code 16: no permission"
    )
    assert str(Unsupported("code 907", "h:1", "RocketMQ 4.9.7")) == (
        "RocketMQ 4.9.7 at h:1 lacks code 907"
    )
    assert str(Ambiguous("cluster", ("east", "west"))) == (
        "there are 2 clusters: east, west; say which cluster is meant"
    )
    assert str(PartlyDone("x", ("a", "b"), (("c", "down"), ("d", "full")))) == (
        "x was done by a, b but not by c (down); not by d (full); "
        "do it again once all of them can: what is done stays as it is"
    )


def test_a_failed_send_tells_who_was_tried_and_what_that_means() -> None:
    failed = SendFailed("orders", 2, 3001, ("a", "b"), 10002, "no answer from h:1", True)
    refused = SendFailed("orders", 1, 7, (), 10001, "cannot reach h:1", False)

    assert str(failed) == (
        "not sent to topic 'orders' in 2 tries (a, b) and 3001 ms: no answer from h:1; "
        "it may be stored all the same: consumers could get it twice"
    )
    assert str(refused) == "not sent to topic 'orders' in 1 try and 7 ms: cannot reach h:1"


def test_the_cause_of_a_failed_send_is_the_error_of_its_last_try() -> None:
    last = ConnectionLost("h:1", "closed")

    with pytest.raises(SendFailed) as raised:
        raise SendFailed("orders", 1, 7, ("a",), 10001, str(last), True) from last

    assert raised.value.cause is last


def test_a_bare_error_of_the_root_class_keeps_its_text() -> None:
    assert str(CometError("something else")) == "something else"

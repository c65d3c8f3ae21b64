"""Every exception this package raises on purpose.

::

    CometError
    ├── ProtocolError
    │   ├── LocalProtocolError     we would break the protocol: a bug or a bad argument here
    │   └── RemoteProtocolError    the peer (or the file) broke it
    ├── InvalidArgument            an argument of a call cannot be used
    ├── SettingsError              a setting has an impossible value, or no such setting exists
    ├── MissingDependency          an optional package is needed for what was asked
    ├── StoreError
    │   ├── StoreLocked            another process has the directory open
    │   ├── DamagedStore           a file of the store is not what it must be
    │   ├── ForeignStore           another storage engine wrote what lies there
    │   └── OffsetOutOfRange       a position the log does not have, or a gap before it
    ├── NotFound                   what was asked for does not exist
    ├── AlreadyExists              what was to be made is there already
    ├── Ambiguous                  several things fit, and none was named
    ├── NoRoute                    no name server knows where a topic is
    ├── NotRunning                 it was not entered, is closed, or belongs to another process
    ├── Unreachable                nobody answers at an address
    ├── BrokerError                a server answered with a code that means failure
    │   └── Refused                the same, with who refused what
    ├── Unsupported                a server's release lacks what was asked for
    ├── PartlyDone                 some servers did what was asked of them, others did not
    ├── SendFailed                 a message was not sent, with all its tries
    ├── CodecError                 values of a type cannot be sent or received as it stands
    │   ├── EncodeError            a value cannot become the body of a message
    │   └── DecodeError            the body of a message is not the value that was declared
    ├── DecisionError              a message cannot be acknowledged, retried or given up like this
    ├── RequestTimeout             no answer before the deadline
    ├── NoReply                    a request was sent, but nobody replied to it
    ├── ConnectionLost             the connection ended before the answer came
    └── TooManyRequests            a limit on requests in flight was reached

Outcomes that a caller plans for are values, not exceptions. Facts are attributes; the sentence for
people (fact, value, next step) is made in ``__str__``.
"""


class CometError(Exception):
    """Root of the tree: ``except CometError`` catches what we raise and nothing else.

    ``fact`` says what is the case, with the value that matters; ``next_step`` says what a person
    can do about it and is empty where nothing useful can be said.
    """

    fact: str = ""
    next_step: str = ""

    def __str__(self) -> str:
        fact = self.fact or super().__str__()
        return f"{fact}; {self.next_step}" if self.next_step else fact


class ProtocolError(CometError):
    """Bytes or values that do not fit RocketMQ's formats."""

    def __init__(self, fact: str) -> None:
        super().__init__(fact)
        self.fact = fact


class LocalProtocolError(ProtocolError):
    """We were asked to write something the format cannot carry."""


class RemoteProtocolError(ProtocolError):
    """What we read is not in the format it claims to be."""


class InvalidArgument(CometError):
    """A call cannot be done with what it was given: ``argument`` is the name of what is wrong."""

    def __init__(self, argument: str, fact: str, next_step: str = "") -> None:
        super().__init__(argument, fact, next_step)
        self.argument = argument
        self.fact = fact
        self.next_step = next_step


class SettingsError(CometError):
    """A setting that cannot be used: ``key`` as the user wrote it, and why."""

    def __init__(self, key: str, reason: str, next_step: str = "") -> None:
        super().__init__(key, reason, next_step)
        self.key = key
        self.reason = reason
        self.fact = f"setting '{key}': {reason}"
        self.next_step = next_step


class MissingDependency(CometError):
    """An optional package is not installed: ``extra`` brings it, if it is one of ours."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(package, extra, purpose)
        self.package = package
        self.extra = extra
        self.purpose = purpose
        self.fact = f"{purpose} needs the package '{package}', which is not installed"
        wanted = f"'cometmq[{extra}]'" if extra else package
        self.next_step = f"install it with: pip install {wanted}"


class StoreError(CometError):
    """A store directory that cannot be used as asked: ``path`` is what it is about."""

    def __init__(self, path: str, problem: str, next_step: str = "") -> None:
        super().__init__(path, problem, next_step)
        self.path = path
        self.problem = problem
        self.fact = f"{path}: {problem}"
        self.next_step = next_step


class StoreLocked(StoreError):
    """Somebody else has the directory open; with ``is_log``, a folder of the log."""

    def __init__(self, path: str, is_log: bool = False) -> None:
        problem = "store is locked by another process"
        next_step = "is a broker running on it?"
        if is_log:
            problem = "the log of another store that is open lies here"
            next_step = "give each broker a storePathCommitLog of its own"
        super().__init__(path, problem, next_step)
        self.args = (path, is_log)  # pickling calls the class again with these


class DamagedStore(StoreError):
    """A file is missing, has the wrong size or content no recovery can mend."""


class ForeignStore(StoreError):
    """Another storage engine (RocksDB, DLedger, compaction, …) wrote what lies there."""


class OffsetOutOfRange(StoreError):
    """``offset`` is not where the log can be read or continued: it has ``[begin, end)``."""

    def __init__(self, path: str, offset: int, begin: int, end: int) -> None:
        problem = f"offset {offset} is outside the log, which has {begin} to {end}"
        super().__init__(path, problem)
        self.offset = offset
        self.begin = begin
        self.end = end
        self.args = (path, offset, begin, end)


class NotFound(CometError):
    """No such thing exists: ``kind`` is its sort ("topic", "group", "file")."""

    def __init__(self, kind: str, name: str, next_step: str = "") -> None:
        super().__init__(kind, name, next_step)
        self.kind = kind
        self.name = name
        self.fact = f"no such {kind}: '{name}'"
        self.next_step = next_step


class AlreadyExists(CometError):
    """There is one by that name: ``kind`` is its sort ("topic", "group")."""

    def __init__(self, kind: str, name: str, next_step: str = "") -> None:
        super().__init__(kind, name, next_step)
        self.kind = kind
        self.name = name
        self.fact = f"there is a {kind} '{name}' already"
        self.next_step = next_step


class Ambiguous(CometError):
    """One ``kind`` was to be named, because there are several: ``choices``."""

    def __init__(self, kind: str, choices: tuple[str, ...]) -> None:
        super().__init__(kind, choices)
        self.kind = kind
        self.choices = choices
        self.fact = f"there are {len(choices)} {kind}s: {', '.join(choices)}"
        self.next_step = f"say which {kind} is meant"


class Unreachable(CometError):
    """Nobody answers at ``address``, and ``reason`` says how we noticed."""

    def __init__(self, address: str, reason: str, next_step: str = "") -> None:
        super().__init__(address, reason, next_step)
        self.address = address
        self.reason = reason
        self.fact = f"cannot reach {address}: {reason}"
        self.next_step = next_step


class NoRoute(CometError):
    """Nobody knows where ``topic`` is: ``asked`` are the name servers and what each answered."""

    def __init__(self, topic: str, asked: tuple[tuple[str, str], ...], next_step: str = "") -> None:
        super().__init__(topic, asked, next_step)
        self.topic = topic
        self.asked = asked
        answers = "; ".join(f"{address} says: {answer}" for address, answer in asked)
        self.fact = f"no route for topic '{topic}': {answers or 'no name server was asked'}"
        self.next_step = next_step


class NotRunning(CometError):
    """``what`` cannot be used now, because of ``problem``."""

    def __init__(self, what: str, problem: str, next_step: str = "") -> None:
        super().__init__(what, problem, next_step)
        self.what = what
        self.problem = problem
        self.fact = f"{what} {problem}"
        self.next_step = next_step


class BrokerError(CometError):
    """A server refused: ``response_code`` and ``remark`` are its own words.

    Handlers raise it to answer with that code; callers get it for an answer they cannot use.
    """

    def __init__(self, response_code: int, remark: str, next_step: str = "") -> None:
        super().__init__(response_code, remark, next_step)
        self.response_code = response_code
        self.remark = remark
        self.fact = f"code {response_code}: {remark}"
        self.next_step = next_step


class Refused(BrokerError):
    """The server at ``address`` refused ``request``, in its own words."""

    def __init__(
        self, address: str, request: str, response_code: int, remark: str, next_step: str = ""
    ) -> None:
        super().__init__(response_code, remark, next_step)
        self.address = address
        self.request = request
        self.args = (address, request, response_code, remark, next_step)
        self.fact = f"{address} refuses {request} with code {response_code}: {remark}"


class Unsupported(CometError):
    """``release``, which runs at ``address``, lacks ``feature``."""

    def __init__(self, feature: str, address: str, release: str, next_step: str = "") -> None:
        super().__init__(feature, address, release, next_step)
        self.feature = feature
        self.address = address
        self.release = release
        self.fact = f"{release} at {address} lacks {feature}"
        self.next_step = next_step


class PartlyDone(CometError):
    """``what`` was done by some servers (``done``) and not by others (``failed``, with reasons)."""

    def __init__(
        self, what: str, done: tuple[str, ...], failed: tuple[tuple[str, str], ...]
    ) -> None:
        super().__init__(what, done, failed)
        self.what = what
        self.done = done
        self.failed = failed
        reasons = "; ".join(f"not by {name} ({reason})" for name, reason in failed)
        self.fact = f"{what} was done by {', '.join(done)} but {reasons}"
        self.next_step = "do it again once all of them can: what is done stays as it is"


class SendFailed(CometError):
    """A message for ``topic`` was not sent in ``tries`` tries and ``cost_ms``.

    ``brokers`` were tried, in this order. ``code`` is what a broker answered in the end, or
    RocketMQ's own number for what happened here: 10001 no connection, 10002 no answer in time,
    10003 any other failure. ``may_be_stored``: a broker may have the message all the same.
    ``reason`` says in words what the last try met; the error itself is ``cause``. ``results`` are
    those of the frames that ``send_many`` has sent before this one.
    """

    results: tuple[object, ...] = ()

    def __init__(
        self,
        topic: str,
        tries: int,
        cost_ms: int,
        brokers: tuple[str, ...],
        code: int,
        reason: str,
        may_be_stored: bool,
    ) -> None:
        super().__init__(topic, tries, cost_ms, brokers, code, reason, may_be_stored)
        self.topic = topic
        self.tries = tries
        self.cost_ms = cost_ms
        self.brokers = brokers
        self.code = code
        self.reason = reason
        self.may_be_stored = may_be_stored
        count = f"{tries} {'try' if tries == 1 else 'tries'}"
        asked = f" ({', '.join(brokers)})" if brokers else ""
        self.fact = f"not sent to topic '{topic}' in {count}{asked} and {cost_ms} ms: {reason}"
        if may_be_stored:
            self.next_step = "it may be stored all the same: consumers could get it twice"

    @property
    def cause(self) -> BaseException | None:
        """The error of the last try; a copy from another process has none."""
        return self.__cause__


class CodecError(CometError):
    """Values of ``type_name`` and bytes cannot be turned into each other, and why."""

    def __init__(self, type_name: str, reason: str, next_step: str = "") -> None:
        super().__init__(type_name, reason, next_step)
        self.type_name = type_name
        self.reason = reason
        self.fact = f"no codec for {type_name}: {reason}"
        self.next_step = next_step


class EncodeError(CodecError):
    """A value of ``type_name`` cannot be sent."""

    def __init__(self, type_name: str, reason: str, next_step: str = "") -> None:
        super().__init__(type_name, reason, next_step)
        self.fact = f"a value of type {type_name} cannot be sent: {reason}"


class DecodeError(CodecError):
    """The body of ``message_id`` cannot be read as ``type_name``."""

    def __init__(self, message_id: str, type_name: str, reason: str, next_step: str = "") -> None:
        super().__init__(type_name, reason, next_step)
        self.args = (message_id, type_name, reason, next_step)
        self.message_id = message_id
        self.fact = f"message {message_id} cannot be read as {type_name}: {reason}"


class DecisionError(CometError):
    """``decision`` ("retry", "ack", …) is not possible for ``message_id``."""

    def __init__(self, message_id: str, decision: str, reason: str, next_step: str = "") -> None:
        super().__init__(message_id, decision, reason, next_step)
        self.message_id = message_id
        self.decision = decision
        self.reason = reason
        self.fact = f"{decision} of message {message_id}: {reason}"
        self.next_step = next_step


class RequestTimeout(CometError):
    """No answer from ``address`` within ``timeout_ms``; the request may have been carried out."""

    def __init__(self, address: str, timeout_ms: int) -> None:
        super().__init__(address, timeout_ms)
        self.address = address
        self.timeout_ms = timeout_ms
        self.fact = f"no answer from {address} within {timeout_ms} ms"


class NoReply(CometError):
    """The request ``message_id`` to ``topic`` was sent; no reply came within ``timeout_ms``."""

    def __init__(self, topic: str, message_id: str, timeout_ms: int) -> None:
        super().__init__(topic, message_id, timeout_ms)
        self.topic = topic
        self.message_id = message_id
        self.timeout_ms = timeout_ms
        self.fact = f"no reply to request {message_id} in topic '{topic}' within {timeout_ms} ms"
        self.next_step = "does a consumer of the topic reply? it may still handle the request"


class ConnectionLost(CometError):
    """The connection to ``address`` ended; what was asked may have been done all the same."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason
        self.fact = f"connection to {address} lost: {reason}"


class TooManyRequests(CometError):
    """``limit`` requests to ``address`` wait for an answer already."""

    def __init__(self, address: str, limit: int) -> None:
        super().__init__(address, limit)
        self.address = address
        self.limit = limit
        self.fact = f"{limit} requests to {address} wait for an answer already"
        self.next_step = "wait for some of them, or raise the limit"

"""Every exception this package raises on purpose.

::

    CometError
    ├── ProtocolError
    │   ├── LocalProtocolError     we would break the protocol: a bug or a bad argument here
    │   └── RemoteProtocolError    the peer (or the file) broke it
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
    ├── Unreachable                nobody answers at an address
    ├── BrokerError                a server answered with a code that means failure
    │   └── Refused                the same, with who refused what
    ├── Unsupported                a server's release lacks what was asked for
    ├── PartlyDone                 some servers did what was asked of them, others did not
    ├── RequestTimeout             no answer before the deadline
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


class SettingsError(CometError):
    """A setting that cannot be used: ``key`` as the user wrote it, and why."""

    def __init__(self, key: str, reason: str, next_step: str = "") -> None:
        super().__init__(key, reason, next_step)
        self.key = key
        self.reason = reason
        self.fact = f"setting '{key}': {reason}"
        self.next_step = next_step


class MissingDependency(CometError):
    """An optional package is not installed: ``extra`` is the one that brings it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(package, extra, purpose)
        self.package = package
        self.extra = extra
        self.purpose = purpose
        self.fact = f"{purpose} needs the package '{package}', which is not installed"
        self.next_step = f"install it with: pip install 'cometmq[{extra}]'"


class StoreError(CometError):
    """A store directory that cannot be used as asked: ``path`` is what it is about."""

    def __init__(self, path: str, problem: str, next_step: str = "") -> None:
        super().__init__(path, problem, next_step)
        self.path = path
        self.problem = problem
        self.fact = f"{path}: {problem}"
        self.next_step = next_step


class StoreLocked(StoreError):
    """Another process has the directory open."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "store is locked by another process", "is a broker running on it?")
        self.args = (path,)  # pickling calls the class again with these


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


class RequestTimeout(CometError):
    """No answer from ``address`` within ``timeout_ms``; the request may have been carried out."""

    def __init__(self, address: str, timeout_ms: int) -> None:
        super().__init__(address, timeout_ms)
        self.address = address
        self.timeout_ms = timeout_ms
        self.fact = f"no answer from {address} within {timeout_ms} ms"


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

"""From an exception to what a person reads and a script tests: fact, next step, exit code."""

import enum
import errno
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click

from cometmq.cli.yaml_writer import Plain
from cometmq.errors import (
    Ambiguous,
    CometError,
    ConnectionLost,
    InvalidArgument,
    NoRoute,
    NotFound,
    Refused,
    RequestTimeout,
    SettingsError,
    Unreachable,
)
from cometmq.logs import one_line


class ExitCode(enum.IntEnum):
    """How the program ended."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    INTERRUPTED = 130  # 128 + SIGINT, as shells have it
    OUTPUT_CLOSED = 141  # 128 + SIGPIPE: whoever read our output went away


_LISTED_BY: Mapping[str, str] = {
    "topic": "cometmq topic ls --all",
    "group": "cometmq group ls",
    "cluster": "cometmq cluster ls",
    "broker": "cometmq cluster describe",
    "context": "cometmq context ls",
}


_REFUSED: Mapping[str, str] = {
    "UPDATE_BROKER_CONFIG": "see 'cometmq broker config get' for keys and values",
    "UPDATE_NAMESRV_CONFIG": "see 'cometmq nameserver config get' for keys and values",
    "DELETE_TOPIC_IN_BROKER": "see 'cometmq topic ls' for those that are not RocketMQ's own",
    "CHECK_CLIENT_CONFIG": "CometMQ's brokers choose by tags (--tags); Apache's choose by SQL with "
    "enablePropertyFilter=true",
}
"""What helps where a server only says no, by its name for the request."""

_ADVICE_TO_PROGRAMS: Sequence[tuple[str, str]] = (
    (r"use keys= for it", "use --key for it"),
    (r"use tag= for it", "use --tag for it"),
    (r"use delay= for it", "use --delay for it"),
    (r"use delay_level= for it", "use --delay-level for it"),
    (r"use deliver_at= for it", "use --deliver-at for it"),
    (r"use \w+= for it", "choose another name"),
    (r"or give None or '\*' for every message", "or give '*' for every message"),
    (r", or raise body_bytes_max here and .*", ": the command line sends no more in one message"),
)
"""What the library tells who writes Python, and what that is on a command line."""


class NotANameServer(CometError):
    """What answers at ``address``, which ``source`` named, does not know what name servers know."""

    def __init__(self, address: str, source: str) -> None:
        super().__init__(address, source)
        self.address = address
        self.source = source
        self.fact = f"{address} is no name server"
        self.next_step = (
            f"the address comes from {source}: brokers listen at other ports than name servers,"
            " whose usual port is 9876"
        )


_EXIT_CODES: Mapping[type[CometError], ExitCode] = {
    SettingsError: ExitCode.USAGE,
    InvalidArgument: ExitCode.USAGE,
    Ambiguous: ExitCode.USAGE,
    NotFound: ExitCode.NOT_FOUND,
    NoRoute: ExitCode.NOT_FOUND,
    Unreachable: ExitCode.UNREACHABLE,
    RequestTimeout: ExitCode.UNREACHABLE,
    ConnectionLost: ExitCode.UNREACHABLE,
    NotANameServer: ExitCode.UNREACHABLE,
}


class Misuse(click.UsageError):
    """A command line that cannot be done as it stands, with what would help."""

    def __init__(self, fact: str, next_step: str) -> None:
        super().__init__(fact, click.get_current_context(silent=True))
        self.next_step = next_step


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a command did not do what was asked."""

    fact: str
    next_step: str
    kind: str
    exit_code: ExitCode

    def as_text(self) -> str:
        """The fact and what to do about it, for people; what a peer put into it stays harmless."""
        text = f"error: {one_line(self.fact)}"
        return f"{text}\n  next: {one_line(self.next_step)}" if self.next_step else text

    def as_record(self) -> Mapping[str, Plain]:
        """The same for programs."""
        facts = {
            "fact": self.fact,
            "next": self.next_step or None,
            "kind": self.kind,
            "exit_code": int(self.exit_code),
        }
        return {"error": facts}


def problem_of(error: Exception) -> Problem:
    """What to tell the user about ``error``; an exception nobody planned for is our bug."""
    if isinstance(error, CometError):
        fact = error.fact or str(error)
        # A refusal of one request is known better here than the library's words for its code.
        of_request = _of_refusal(error) if isinstance(error, Refused) else None
        advice = of_request or _for_people(error.next_step) or _advice(error)
        if isinstance(error, Ambiguous):
            advice = f"say which {error.kind} is meant, with --{error.kind}"
        return Problem(fact, advice, type(error).__name__, _exit_code(error))
    if isinstance(error, click.ClickException):
        return _misuse(error)
    if isinstance(error, OSError):
        return _system(error)
    fact = f"unexpected {type(error).__name__}: {error}".removesuffix(": ")
    advice = "run again with --debug for the traceback, and report it as a bug"
    return Problem(fact, advice, type(error).__name__, ExitCode.FAILED)


def _of_refusal(error: Refused) -> str | None:
    if "black list" in error.remark:
        return "set it where the server is started, by an option or in its file"
    return _REFUSED.get(error.request)


def _for_people(advice: str) -> str:
    for pattern, words in _ADVICE_TO_PROGRAMS:
        advice = re.sub(pattern, words, advice)
    return advice


def _advice(error: CometError) -> str:
    """What the command line can add where the library has nothing to say."""
    if isinstance(error, NotFound) and error.kind in _LISTED_BY:
        return f"see '{_LISTED_BY[error.kind]}'"
    if isinstance(error, NotFound) and error.kind == "value":
        return f"see 'cometmq nameserver kv ls {error.name.partition('/')[0]}'"
    if isinstance(error, Unreachable):
        return "is it running? see 'cometmq status'"
    if isinstance(error, RequestTimeout | ConnectionLost):
        return "is it well? see 'cometmq status'"
    return ""


def _exit_code(error: CometError) -> ExitCode:
    codes = (code for kind, code in _EXIT_CODES.items() if isinstance(error, kind))
    return next(codes, ExitCode.FAILED)


def _misuse(error: click.ClickException) -> Problem:
    if not isinstance(error, click.UsageError):
        return Problem(_sentence(error.format_message()), "", "Failure", ExitCode.FAILED)
    if isinstance(error, Misuse):
        return Problem(error.message, error.next_step, "Usage", ExitCode.USAGE)
    program = error.ctx.command_path if error.ctx else "cometmq"
    similar = _similar(error)
    if similar:
        advice = f"did you mean '{similar[0]}'? see '{program} --help'"
        return Problem(_sentence(error.message), advice, "Usage", ExitCode.USAGE)
    advice = f"see '{program} --help'"
    if isinstance(error, click.NoSuchOption):  # in full it would name what is not similar
        return Problem(_sentence(error.message), advice, "Usage", ExitCode.USAGE)
    return Problem(_sentence(error.format_message()), advice, "Usage", ExitCode.USAGE)


def _similar(error: click.UsageError) -> list[str]:
    """What may have been meant. The parser counts dashes: to it --yes looks like --tls."""
    import difflib

    typed = str(getattr(error, "option_name", "")).lstrip("-")
    found = getattr(error, "possibilities", None) or []
    if not typed:
        return list(found)
    bare = {name.lstrip("-"): name for name in found}
    return [bare[name] for name in difflib.get_close_matches(typed, bare)]


def _sentence(message: str) -> str:
    """click's sentence in the form of ours: it continues a line and has no stop."""
    message = " ".join(message.split()).removesuffix(".")
    is_word = message[1:2].islower() or message[1:2] == " "
    return message[:1].lower() + message[1:] if is_word else message


def _system(error: OSError) -> Problem:
    reason = error.strerror or str(error) or type(error).__name__
    kind = type(error).__name__
    if isinstance(error, ConnectionError | TimeoutError):
        advice = "check the address and that the server is running"
        return Problem(reason, advice, kind, ExitCode.UNREACHABLE)
    if isinstance(error, FileNotFoundError):
        return Problem(f"no such file: '{error.filename}'", "", kind, ExitCode.NOT_FOUND)
    if error.errno == errno.EADDRNOTAVAIL:
        advice = "listen on one of this machine, such as 127.0.0.1, or on 0.0.0.0 for all"
        return Problem(f"no such address here: {reason}", advice, kind, ExitCode.FAILED)
    fact = f"'{error.filename}': {reason}" if error.filename else reason
    return Problem(fact, "", kind, ExitCode.FAILED)

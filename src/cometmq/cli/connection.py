"""How a command gets its cluster: flags, environment, contexts, and what is made of them.

The name servers come from ``--namesrv``, else from the context that ``--context`` or
``COMETMQ_CONTEXT`` names, else from ``NAMESRV_ADDR``, else from the current context, else they are
at 127.0.0.1:9876. Whoever names name servers without a context gets nothing from contexts: the keys
of one cluster must not go to another. Flags win over the context that was named, that over the
environment.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cometmq.cli.command import GlobalOption
from cometmq.cli.contexts import ContextEntry, Contexts, contexts_path, read_contexts
from cometmq.cli.frame import Frame
from cometmq.cli.problems import NotANameServer
from cometmq.cli.times import Duration, parse_duration
from cometmq.errors import NoRoute, SettingsError, Unreachable, Unsupported

# Imported when they are needed: help and completion must cost next to nothing.
if TYPE_CHECKING:
    from cometmq import Client
    from cometmq.admin import Admin
    from cometmq.aio import Client as AsyncClient
    from cometmq.remoting.config import TlsClientSettings

NAMESRV_DEFAULT = "127.0.0.1:9876"
TIMEOUT_MS_DEFAULT = 5_000
_NAMESRV_VARIABLES = ("NAMESRV_ADDR", "COMETMQ_NAMESRV_ADDR")
_SECRET_BYTES_MAX = 4096
CONNECT_TIMEOUT_MS_MAX = 3_000
SILENCE_MS = 5_000
"""A broker that hangs costs a command its timeout once, and 'top' looks again soon."""
_DEFAULT = "the default"

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A cluster and how to talk to it; ``source`` says where the address comes from."""

    namesrv: str
    source: str
    access_key: str | None = None
    secret_key: str | None = None
    tls: "TlsClientSettings | None" = None
    timeout_ms: int = TIMEOUT_MS_DEFAULT
    is_timeout_given: bool = False  # then nothing may take longer

    def __repr__(self) -> str:
        return f"Target(namesrv={self.namesrv!r}, source={self.source!r})"  # and no secret

    @asynccontextmanager
    async def admin(self) -> "AsyncIterator[Admin]":
        """An admin, with connections of its own while the block runs."""
        from cometmq.admin import Admin
        from cometmq.cli.patience import Within
        from cometmq.remoting.connections import Connections
        from cometmq.remoting.signing import Credentials

        connections = Connections(
            tls=self.tls,
            credentials=Credentials.of(self.access_key, self.secret_key, None),
            connect_timeout_ms=min(self.timeout_ms, CONNECT_TIMEOUT_MS_MAX),
        )
        async with connections:
            yield Admin(
                self.namesrv,
                timeout_ms=self.timeout_ms,
                connections=Within(connections, self.timeout_ms)
                if self.is_timeout_given
                else connections,
                silence_ms=SILENCE_MS,
            )

    def client(self, **options: Any) -> "Client":
        """A client whose calls wait, to be entered; ``options`` are those of ``cometmq.Client``."""
        from cometmq import Client

        return Client(self.namesrv, **self._client_options(options))

    def async_client(self, **options: Any) -> "AsyncClient":
        """The same for asyncio."""
        from cometmq.aio import Client

        return Client(self.namesrv, **self._client_options(options))

    def _client_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        own = {
            "access_key": self.access_key,
            "secret_key": self.secret_key,
            "tls": self.tls,
            "request_timeout_ms": self.timeout_ms,
            "connect_timeout_ms": min(self.timeout_ms, CONNECT_TIMEOUT_MS_MAX),
        }
        return {**own, **options}


def cluster_options(function: F) -> F:
    """Give a command the options that say which cluster; their values go to the frame."""
    for option in reversed(_options()):
        # What click.option does, for options that are made already.
        function.__dict__.setdefault("__click_params__", []).append(option)
    return function


def target_of(frame: Frame) -> Target:
    """The cluster that this command line means. Raises SettingsError, NotFound (of a context)."""
    contexts = read_contexts(contexts_path(frame.environment))
    return resolve(frame.cluster_flags, frame.environment, contexts)


def resolve(flags: Mapping[str, Any], environment: Mapping[str, str], contexts: Contexts) -> Target:
    """The same from its parts."""
    given = ContextEntry(**{name: value for name, value in flags.items() if name != "context"})
    surroundings = _from_environment(environment)
    named, name = _context_name(flags, environment, surroundings, contexts)
    entry = ContextEntry() if name is None else contexts.entry(name)
    layers = (given, entry, surroundings) if named else (given, surroundings, entry)
    said: dict[str, Any] = {}
    for layer in reversed(layers):
        said |= layer.said()
    return Target(
        namesrv=said.get("namesrv", NAMESRV_DEFAULT),
        source=_source(given, surroundings, entry, name if named else None, name),
        access_key=said.get("access_key"),
        secret_key=_secret(said.get("secret_key_file"), given, environment),
        tls=_tls(said, environment),
        timeout_ms=said.get("timeout_ms", TIMEOUT_MS_DEFAULT),
        is_timeout_given="timeout_ms" in said,
    )


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end; Ctrl-C cancels it and ends the program as usual."""
    import asyncio

    return asyncio.run(work)


def ask(frame: Frame, question: "Callable[[Admin], Awaitable[T]]") -> T:
    """Enter an admin of the cluster, ask it, leave it."""
    target = target_of(frame)

    async def work() -> T:
        async with target.admin() as admin:
            return await question(admin)

    with explained(target):
        return run(work())


@contextmanager
def explained(target: Target) -> Iterator[None]:
    """Tell who cannot reach the name servers where their address comes from.

    Raises NotANameServer when something else answers there: a broker, mostly.
    """
    from cometmq.remoting.addresses import name_servers_in

    try:
        yield
    except (Unsupported, NoRoute) as error:
        # An advice means that some name servers know the request, and others do not yet.
        answered = () if isinstance(error, Unsupported) and error.next_step else _ignorant(error)
        for address in name_servers_in(target.namesrv, ""):
            if address in answered:
                raise NotANameServer(address, target.source) from error
        raise
    except Unreachable as error:
        if set(error.address.split(";")) != set(name_servers_in(target.namesrv, "")):
            raise
        if target.tls is not None:
            advice = (
                f"the address comes from {target.source}: is it right, do they run,"
                " and do they speak TLS with a certificate that you trust?"
            )
        elif target.source == _DEFAULT:
            advice = "start a cluster with 'cometmq up', or name yours with --namesrv or a context"
        else:
            advice = f"the address comes from {target.source}: is it right, and do they run?"
        raise Unreachable(error.address, error.reason, advice) from error


def _ignorant(error: Unsupported | NoRoute) -> tuple[str, ...]:
    """Who does not know the request, so that it is no name server if it was asked as one."""
    if isinstance(error, Unsupported):
        return (error.address,)
    from cometmq.codec.codes import ResponseCode

    code = f"code {int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)} "
    return tuple(address for address, answer in error.asked if answer.startswith(code))


def _options() -> list[click.Parameter]:
    path = click.Path(dir_okay=False)
    return [
        ClusterOption(
            "--namesrv",
            is_common=True,
            metavar="LIST",
            help="Name servers, as host:port;host2:port.  [NAMESRV_ADDR; default: "
            f"{NAMESRV_DEFAULT}]",
        ),
        ClusterOption(
            "--context",
            is_common=True,
            metavar="NAME",
            shell_complete=_contexts,
            help="A named cluster.  [COMETMQ_CONTEXT; default: see 'cometmq context ls']",
        ),
        ClusterOption("--access-key", metavar="KEY", help="Who asks.  [COMETMQ_ACCESS_KEY]"),
        ClusterOption(
            "--secret-key-file",
            metavar="FILE",
            type=path,
            help="File with the secret key.  [COMETMQ_SECRET_KEY_FILE; or the key itself in "
            "COMETMQ_SECRET_KEY]",
        ),
        ClusterOption(
            "--tls/--no-tls", default=None, help="Talk TLS to all servers.  [COMETMQ_TLS]"
        ),
        ClusterOption(
            "--tls-ca", metavar="FILE", type=path, help="Who may sign servers' certificates."
        ),
        ClusterOption("--tls-cert", metavar="FILE", type=path, help="Certificate to show."),
        ClusterOption("--tls-key", metavar="FILE", type=path, help="Its private key."),
        ClusterOption(
            "--timeout",
            "timeout_ms",
            metavar="DURATION",
            type=Duration(minimum_ms=1),
            help="For one request.  [COMETMQ_TIMEOUT; default: 5s, or what a slow one needs]",
        ),
    ]


def _contexts(context: click.Context, option: click.Parameter, typed: str) -> Any:
    from cometmq.cli.completion import complete_contexts  # which needs this module

    return complete_contexts(context, option, typed)


class ClusterOption(GlobalOption):
    """An option of every command that needs a cluster."""

    def __init__(self, *names: str, is_common: bool = False, **facts: Any) -> None:
        explained_by = "" if is_common else "cometmq context set"
        key = names[-1].split("/")[0].removeprefix("--").replace("-", "_")

        def store(frame: Frame, value: Any) -> None:
            frame.cluster_flags[key] = value

        super().__init__(*names, store=store, explained_by=explained_by, **facts)


def _context_name(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    surroundings: ContextEntry,
    contexts: Contexts,
) -> tuple[bool, str | None]:
    """Whether somebody named a context, and which one holds."""
    if flags.get("context"):
        return True, flags["context"]
    if flags.get("namesrv"):
        return False, None
    if environment.get("COMETMQ_CONTEXT"):
        return True, environment["COMETMQ_CONTEXT"]
    return False, None if surroundings.namesrv else contexts.current


def _from_environment(environment: Mapping[str, str]) -> ContextEntry:
    def text(*names: str) -> str | None:
        return next((environment[name] for name in names if environment.get(name)), None)

    tls, timeout = text("COMETMQ_TLS"), text("COMETMQ_TIMEOUT")
    if tls is not None and tls.lower() not in ("true", "false", "1", "0"):
        raise SettingsError("COMETMQ_TLS", f"'{tls}' is neither true nor false")
    timeout_ms = None if timeout is None else parse_duration(timeout)
    if timeout is not None and not timeout_ms:
        raise SettingsError("COMETMQ_TIMEOUT", f"'{timeout}' is no duration", "write 5s or 500ms")
    return ContextEntry(
        namesrv=text(*_NAMESRV_VARIABLES),
        access_key=text("COMETMQ_ACCESS_KEY"),
        secret_key_file=text("COMETMQ_SECRET_KEY_FILE"),
        tls=None if tls is None else tls.lower() in ("true", "1"),
        timeout_ms=timeout_ms,
    )


def _source(
    given: ContextEntry,
    surroundings: ContextEntry,
    entry: ContextEntry,
    named: str | None,
    name: str | None,
) -> str:
    """Where the address comes from, for ``status`` and for who cannot reach it."""
    if given.namesrv:
        return "--namesrv"
    if entry.namesrv and (named or not surroundings.namesrv):
        return f"context '{name}'"
    return "NAMESRV_ADDR" if surroundings.namesrv else _DEFAULT


def _secret(file: str | None, given: ContextEntry, environment: Mapping[str, str]) -> str | None:
    key = environment.get("COMETMQ_SECRET_KEY")
    if key and given.secret_key_file is None:
        return key
    if file is None:
        return None
    try:
        with Path(file).expanduser().open("rb") as opened:
            content = opened.read(_SECRET_BYTES_MAX + 1)
        secret = content.decode().strip()
    except OSError as error:
        raise SettingsError("secret_key_file", f"'{file}': {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError("secret_key_file", f"'{file}' is no text") from error
    if not secret or len(content) > _SECRET_BYTES_MAX:
        raise SettingsError("secret_key_file", f"'{file}' holds no key", "it has one line")
    return secret


def _tls(said: Mapping[str, Any], environment: Mapping[str, str]) -> "TlsClientSettings | None":
    files = {name: said[name] for name in ("tls_ca", "tls_cert", "tls_key") if name in said}
    is_configured = any(name.startswith("COMETMQ_TLS_CLIENT_") for name in environment)
    if said.get("tls") is False or not (said.get("tls") or files or is_configured):
        return None
    from cometmq.remoting.config import TlsClientSettings
    from cometmq.settings import load

    flags = {
        "is_enabled": True if said.get("tls") or files else None,
        "trust_cert_path": files.get("tls_ca"),
        "cert_path": files.get("tls_cert"),
        "key_path": files.get("tls_key"),
    }
    settings = load(TlsClientSettings, environment=environment, flags=flags).settings
    return settings if settings.is_enabled else None

"""Writes docs/reference/settings.md: ``python -m scripts.settings_reference``."""

from collections.abc import Iterator
from pathlib import Path

from cometmq.broker.config import BrokerNetworkSettings, BrokerSettings
from cometmq.logs import LogSettings
from cometmq.nameserver.config import NameServerNetworkSettings, NameServerSettings
from cometmq.remoting.config import (
    ChannelSettings,
    HealthSettings,
    ServerSettings,
    TlsClientSettings,
    TlsServerSettings,
)
from cometmq.settings import Row, Settings, describe
from cometmq.store.config import StoreSettings

PAGE = Path(__file__).parents[1] / "docs/reference/settings.md"

COMPONENTS: tuple[tuple[str, type[Settings]], ...] = (
    ("Logging", LogSettings),
    ("Name server", NameServerSettings),
    ("Name server: where it listens", NameServerNetworkSettings),
    ("Broker", BrokerSettings),
    ("Broker: where it listens", BrokerNetworkSettings),
    ("Store", StoreSettings),
    ("Servers", ServerSettings),
    ("Connections", ChannelSettings),
    ("TLS of servers", TlsServerSettings),
    ("TLS of clients", TlsClientSettings),
    ("Health and metrics", HealthSettings),
)
"""Heading and class, in the order of the page."""

INTRODUCTION = """\
# Settings

*This page is made from the settings classes by `python -m scripts.settings_reference`.*

A setting comes from, strongest first:

1. a **flag** on the command line, where the command has one;
2. the **environment**: the variable in the table. An empty variable counts as not set;
3. a **file** in RocketMQ's properties format, where the command reads one, under the key in the
   table. An unknown key is reported with the one that was probably meant, and ignored;
4. its **default**.

A value that makes no sense (a word for a number, a port above 65535) stops the program with exit
code 2 and a message that names the setting as you wrote it.

Names end in their unit: `_ms` is milliseconds, `_bytes` is bytes. Booleans are `true` or `false`
(`yes`, `on`, `1` and their opposites work too); words are accepted in any case; the parts of a list
are separated as the table says.
"""


def page() -> str:
    """The whole page."""
    return INTRODUCTION + "".join(_section(title, cls) for title, cls in COMPONENTS)


def _section(title: str, cls: type[Settings]) -> str:
    return "\n".join(
        [
            "",
            f"## {title}",
            "",
            "| Key in a file | Variable | Type | Default | Meaning |",
            "|---|---|---|---|---|",
            *(_row(row) for row in describe(cls)),
            *_without_effect(cls),
            "",
        ]
    )


def _row(row: Row) -> str:
    variables = "<br>".join(f"`{variable}`" for variable in row.variables)
    default = f"`{row.default_text}`" if row.default_text else "none"
    kind = row.type_text.replace("|", "\\|")
    return f"| `{row.key}` | {variables} | {kind} | {default} | {row.doc} |"


def _without_effect(cls: type[Settings]) -> Iterator[str]:
    if cls.accepted_without_effect:
        yield from ("", "Accepted in a file, without effect here:", "")
        yield from ("| Because | Keys |", "|---|---|")
        by_reason: dict[str, list[str]] = {}
        for key, inert in sorted(cls.accepted_without_effect.items()):
            by_reason.setdefault(inert.reason, []).append(f"`{key}`")
        for reason, keys in sorted(by_reason.items()):
            yield f"| {reason} | {', '.join(keys)} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")

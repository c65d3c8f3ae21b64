"""Settings: one frozen typed class per component, one table that reads it from everywhere.

A field is written once, with everything anybody wants to know about it::

    @settings_class
    class StoreSettings(Settings):
        flush_interval_ms: int = setting(
            500, key="flushIntervalCommitLog", doc="Time between two flushes.", minimum=1
        )

From that one line come the key of RocketMQ's properties files (``flushIntervalCommitLog``), the
environment variable (``COMETMQ_FLUSH_INTERVAL_MS``), the command line's option, the help text and
the reference page. Flags win over the environment, that over the file, that over the default.

A program that reads several classes from one file bundles them::

    @dataclass(frozen=True, slots=True, kw_only=True)
    class BrokerConfig(Bundle):
        broker: BrokerSettings = field(default_factory=BrokerSettings)
        store: StoreSettings = field(default_factory=StoreSettings)

Units are part of a field's name; durations and sizes are ints. Known types: ``int``, ``float``,
``bool``, ``str``, an enum, ``Path``, ``tuple[str, ...]``, and each of these ``| None``. What the
settings of a component *are* stays with that component; here is only how they are declared and
read.
"""

from cometmq.settings._bundle import Bundle, shown_properties
from cometmq.settings._declare import InertKey, Settings, describe, setting, settings_class
from cometmq.settings._load import (
    KeyReview,
    Loaded,
    Origin,
    UnknownKey,
    as_properties,
    load,
    review_keys,
)
from cometmq.settings._row import Row

__all__ = [
    "Bundle",
    "InertKey",
    "KeyReview",
    "Loaded",
    "Origin",
    "Row",
    "Settings",
    "UnknownKey",
    "as_properties",
    "describe",
    "load",
    "review_keys",
    "setting",
    "settings_class",
    "shown_properties",
]

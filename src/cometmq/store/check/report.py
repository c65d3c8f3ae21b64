"""What a check has found: findings with their severity, and how much was looked at."""

from __future__ import annotations

import collections
import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

FINDINGS_MAX: Final = 1000
"""So many findings of each severity are kept; the others are counted."""


class Severity(enum.StrEnum):
    """What a finding means for who opens the store."""

    ERROR = "error"
    """The store contradicts itself."""
    RECOVERABLE = "recoverable"
    """Left by a process that was killed; opening the store mends it."""
    NOTE = "note"
    """Odd but harmless, and usual after certain histories: a deleted topic, a crash of Apache's."""


class Kind(enum.StrEnum):
    """What is wrong."""

    BROKEN_CHAIN = "broken-chain"
    """Where a record should begin there is none."""
    WRONG_MAGIC = "wrong-magic"
    WRONG_CRC = "wrong-crc"
    WRONG_POSITION = "wrong-position"
    """A record says it lies elsewhere."""

    QUEUE_GAP = "queue-gap"
    """Messages of a queue have higher numbers than their entries."""
    QUEUE_REPEAT = "queue-repeat"
    """Messages of a queue have lower numbers than their entries."""
    ENTRY_NOWHERE = "entry-nowhere"
    """A queue entry points where no message begins."""
    ENTRY_ELSEWHERE = "entry-elsewhere"
    """A queue entry points to a message of another queue or of another number."""
    ENTRY_SIZE = "entry-size"
    ENTRY_TAG = "entry-tag"
    BEYOND_LOG = "beyond-log"
    """Queue entries point to where the log has already ended."""
    NO_ENTRY = "no-entry"
    """A message has no entry in its queue."""
    NO_QUEUE = "no-queue"
    """Messages have no queue at all."""

    INDEX_NOWHERE = "index-nowhere"
    """An index entry points where no message begins."""
    INDEX_KEY = "index-key"
    """An index entry has the hash of none of the message's keys."""
    INDEX_CHAIN = "index-chain"
    """A slot or entry leads to the wrong entry, or the header miscounts them."""

    FILE_SIZE = "file-size"
    FILE_NAME = "file-name"
    FILE_MISSING = "file-missing"
    ORPHAN = "orphan"
    """Something that does not belong to the store lies in it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    ``position`` is a byte of the log, or the number of an entry in a queue or an index file; None
    when the finding is about a whole file.
    """

    kind: Kind
    severity: Severity
    path: Path
    position: int | None
    text: str

    def __str__(self) -> str:
        place = f"{self.path}" if self.position is None else f"{self.path} at {self.position}"
        return f"{self.severity}: {place}: {self.text}"


@dataclass(slots=True)
class Report:
    """What there is in a directory, and what is wrong with it."""

    root: Path
    is_killed: bool = False
    """``abort`` is there: a process has it open, or did not come to close it."""
    log_begin: int = 0
    log_end: int = 0
    """Where the last record ends that can be reached."""
    records: int = 0
    queues: int = 0
    entries: int = 0
    """Queue entries, those whose messages are deleted and fillers included."""
    index_files: int = 0
    index_entries: int = 0
    findings: list[Finding] = field(default_factory=list)
    counts: collections.Counter[tuple[Severity, Kind]] = field(default_factory=collections.Counter)
    """How often each kind was found, those that were not kept included."""

    @property
    def bytes(self) -> int:
        return self.log_end - self.log_begin

    @property
    def is_consistent(self) -> bool:
        """Whether nothing is wrong that opening the store would not mend."""
        return self.count(Severity.ERROR) == 0

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing to say at all."""
        return not self.counts

    @property
    def dropped(self) -> int:
        """How many findings were not kept."""
        return self.counts.total() - len(self.findings)

    def count(self, severity: Severity) -> int:
        return sum(count for (found, _), count in self.counts.items() if found is severity)

    def add(
        self, kind: Kind, severity: Severity, path: Path, position: int | None, text: str
    ) -> None:
        self.counts[severity, kind] += 1
        if self.count(severity) <= FINDINGS_MAX:
            self.findings.append(Finding(kind, severity, path, position, text))

    def __str__(self) -> str:
        lines = [str(finding) for finding in self.findings]
        if self.dropped:
            lines.append(f"… and {self.dropped} more")
        return "\n".join(lines) or f"{self.root}: consistent"

"""What the parts of one check share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cometmq.store.check.report import Severity

if TYPE_CHECKING:
    from cometmq.store.check.reading import Mappings, Segments
    from cometmq.store.check.report import Report
    from cometmq.store.directory import Layout
    from cometmq.store.files import Files

BROKEN_MAX: Final = 10_000


@dataclass(slots=True)
class Context:
    """A store that is being checked, and what is known of it so far."""

    report: Report
    layout: Layout
    files: Files
    mappings: Mappings
    log: Segments
    mended_from: int | None = None
    """Log position from which on opening the store brings everything in line; None: nowhere."""
    broken: set[int] = field(default_factory=set)
    """Positions of messages that were reported: what points there is not reported again."""

    def severity_at(self, position: int) -> Severity:
        """What a contradiction about the message at ``position`` of the log means."""
        is_mended = self.mended_from is not None and position >= self.mended_from
        return Severity.RECOVERABLE if is_mended else Severity.ERROR

    def add_broken(self, position: int) -> None:
        if len(self.broken) < BROKEN_MAX:
            self.broken.add(position)

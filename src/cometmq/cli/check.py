"""What ``doctor`` says about one thing that it looked at."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from cometmq.cli.yaml_writer import Plain


class Status(enum.StrEnum):
    """How a check turned out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"
    """There was nothing to look at."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: Status
    detail: str
    next_step: str = ""

    def as_record(self) -> Mapping[str, Plain]:
        return {
            "check": self.name,
            "status": self.status.value,
            "detail": self.detail,
            "next_step": self.next_step or None,
        }

"""Ext fields of our own (ADR 17): what they may hold, and what they ask for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cometmq.codec.codes import ResponseCode
from cometmq.errors import BrokerError
from cometmq.store.results import GetLimits

if TYPE_CHECKING:
    from cometmq.broker.config import BrokerSettings
    from cometmq.codec.headers.send import SendMessage

PRODUCER_ID_CHARACTERS_MAX: Final = 200
_PRODUCER_ID: Final = re.compile(rf"[!-~]{{1,{PRODUCER_ID_CHARACTERS_MAX}}}")
_DIGITS: Final = re.compile("[0-9]{1,19}")
_I64_MAX: Final = (1 << 63) - 1
_SHOWN_CHARACTERS_MAX: Final = 40


def sequence_of(header: SendMessage) -> tuple[str, int]:
    """Producer id and first sequence of an idempotent send; raises BrokerError if one is none."""
    producer_id, text = header.producer_id, header.sequence
    if producer_id is None or text is None:
        missing = "cometProducerId" if producer_id is None else "cometSequence"
        raise _refused(f"an idempotent send needs '{missing}' too")
    if _PRODUCER_ID.fullmatch(producer_id) is None:
        raise _refused(
            f"'cometProducerId' has {len(producer_id)} characters:"
            f" 1 to {PRODUCER_ID_CHARACTERS_MAX} visible ASCII characters are possible"
        )
    return producer_id, _number("cometSequence", text)


def large_limits(
    count: str | None, bytes_max: str | None, usual: GetLimits, settings: BrokerSettings
) -> GetLimits:
    """How much a pull returns that asks for more than ``usual``; what is not asked for stays.

    No more than the settings allow, and the same from disk and from memory. Raises BrokerError for
    what is no number.
    """
    wanted_count, wanted_bytes = usual.count, usual.bytes_max
    if count is not None:
        asked = _number("cometMaxMsgNums", count)
        wanted_count = max(min(asked, settings.large_pull_count_max), 1)
    if bytes_max is not None:
        asked = _number("cometMaxMsgBytes", bytes_max)
        wanted_bytes = max(min(asked, settings.large_pull_bytes_max), 1)
    return GetLimits(
        wanted_count,
        wanted_bytes,
        wanted_count if count is not None else usual.count_cold,
        wanted_bytes if bytes_max is not None else usual.bytes_cold_max,
        max(usual.entries_max, wanted_count),
    )


def _number(field: str, text: str) -> int:
    if _DIGITS.fullmatch(text) is None or int(text) > _I64_MAX:
        shown = text[:_SHOWN_CHARACTERS_MAX]
        raise _refused(f"'{field}' is no number from 0 to {_I64_MAX}: '{shown}'")
    return int(text)


def _refused(remark: str) -> BrokerError:
    return BrokerError(ResponseCode.INVALID_PARAMETER, remark)

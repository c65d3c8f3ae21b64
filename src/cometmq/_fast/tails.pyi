from collections.abc import Callable
from typing import Any

from cometmq.codec.answer_pieces import Piece
from cometmq.codec.pulls import PullPlan as PullPlan
from cometmq.codec.pulls import PullTail as PullTail
from cometmq.codec.sends import SendTail as SendTail
from cometmq.codec.tails import IndexTail as IndexTail
from cometmq.codec.tails import LogTail as LogTail
from cometmq.codec.tails import QueueTail as QueueTail
from cometmq.codec.tails import dispatch as dispatch

def bind(
    astuple: Callable[[Any], tuple[Any, ...]],
    send_pieces: Callable[[Any, int], list[Piece]],
    pull_pieces: Callable[[Any, int], list[Piece]],
    protocol_error: type[Exception],
) -> None: ...

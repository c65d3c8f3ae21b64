"""Requests that this broker does not serve as yet; whoever sends one is told what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cometmq.codec import core
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.transaction import EndTransaction
from cometmq.codec.sysflag import TransactionType
from cometmq.remoting.routes import Answer

if TYPE_CHECKING:
    from cometmq.codec.command import Command
    from cometmq.remoting.channel import Channel
    from cometmq.remoting.routes import Routes

_POP: Final = "pop consumption is not supported yet; let the consumer pull (clientRebalance=true)"

MISSING: Final = {
    RequestCode.POP_MESSAGE: _POP,
    RequestCode.ACK_MESSAGE: _POP,
    RequestCode.PEEK_MESSAGE: _POP,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _POP,
    RequestCode.NOTIFICATION: _POP,
    RequestCode.POLLING_INFO: _POP,
    RequestCode.BATCH_ACK_MESSAGE: _POP,
}
"""What is refused, and why. Half messages and filters are refused where others are accepted."""

_ENDINGS: Final = (TransactionType.COMMIT, TransactionType.ROLLBACK)


class NotYetHandlers:
    """Refusals with code 3, the one that clients know for a broker too old for a request."""

    def add_to(self, routes: Routes) -> None:
        for code in MISSING:
            routes.add(code, self.refuse)
        routes.add(RequestCode.END_TRANSACTION, self.end_transaction)

    def refuse(self, channel: Channel, command: Command) -> Answer:
        return _refusal(command, MISSING[RequestCode(command.code)])

    def end_transaction(self, channel: Channel, command: Command) -> Answer | None:
        """There are no half messages, so none can be committed; "unknown" is never answered."""
        said = core.read(command, EndTransaction)
        if said.commit_or_rollback not in _ENDINGS:
            return None
        return _refusal(command, "transactions are not supported yet")


def _refusal(command: Command, reason: str) -> Answer:
    remark = f" request type {command.code} not supported: {reason}"
    return Answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)

"""The second phase of transactions: ending them, and asking a producer how one ended."""

from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.base import I32, I64, Header, request


@request(RequestCode.END_TRANSACTION)
class EndTransaction(Header):
    """Commit (8), roll back (12) or leave open (0) the half message at ``commit_log_offset``.

    ``tran_state_table_offset`` is its offset in the half queue. Both come from the send's answer or
    from a check.
    """

    producer_group: str
    tran_state_table_offset: I64
    commit_log_offset: I64
    commit_or_rollback: I32
    msg_id: str
    from_transaction_check: bool | None = None
    transaction_id: str | None = None
    topic: str | None = None


@request(RequestCode.CHECK_TRANSACTION_STATE)
class CheckTransactionState(Header):
    """A broker asks a producer; the answer is a later ``EndTransaction`` with these offsets."""

    tran_state_table_offset: I64
    commit_log_offset: I64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None


@request(RequestCode.RESUME_CHECK_HALF_MESSAGE)
class ResumeCheckHalfMessage(Header):
    """Check a half message again that was given up after too many checks."""

    msg_id: str | None = None
    topic: str | None = None

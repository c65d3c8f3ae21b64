"""Requests of our own, which no broker of Apache knows; see docs/reference/extensions.md."""

from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.base import I64, Header, request, response


@response(RequestCode.COMET_LOG_STATUS)
class LogStatusResponse(Header):
    """How far the log may be read from its files, and which files those are.

    ``newest_file`` is the path of the file that is written to, empty when there is none yet, and
    ``newest_file_inode`` its inode: who sees another one there looks at other files.
    ``sample_digest`` is that of a part of the file that begins at ``sample_begin`` and has the last
    confirmed byte: who finds another one there does so, too. It is empty when nothing is confirmed,
    and absent from brokers that do not know it.
    """

    confirmed_offset: I64
    begin_offset: I64
    end_offset: I64
    file_bytes: I64
    store_root: str
    newest_file: str
    newest_file_inode: I64
    pull_count_max: I64
    pull_bytes_max: I64
    sample_begin: I64 | None = None
    sample_digest: str | None = None


@request(RequestCode.COMET_ARCHIVE_COMMIT)
class ArchiveCommit(Header):
    """Everything before ``offset`` of the log is in the archive called ``name``."""

    name: str
    offset: I64


@response(RequestCode.COMET_ARCHIVE_COMMIT)
class ArchiveCommitResponse(Header):
    """Where the archive's watermark stands now."""

    offset: I64


@request(RequestCode.COMET_ARCHIVE_REMOVE)
class ArchiveRemove(Header):
    """The archive called ``name`` is given up: the log is not kept for it any more."""

    name: str

from cometmq.codec.tails import IndexTail as IndexTail
from cometmq.codec.tails import LogTail as LogTail
from cometmq.codec.tails import QueueTail as QueueTail
from cometmq.codec.tails import dispatch as dispatch

"""Questions and commands to a cluster, ours or Apache's: ``Admin``, and where to move a group to.

Here belongs what asks servers about topics, groups, offsets, messages and themselves, and what
changes them; each subject has its module, with what it answers. Sending and consuming belong to
``client``, printing to ``cli``.
"""

from cometmq.admin.admin import Admin
from cometmq.admin.positions import Earliest, Latest, Offset, Position, Shift, Time

__all__ = ["Admin", "Earliest", "Latest", "Offset", "Position", "Shift", "Time"]

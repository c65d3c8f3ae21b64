"""Is a store directory consistent? Reading only; what opening a store does is in ``recovery``.

``checker`` goes over a directory once and makes a ``report``: names and sizes of files, the ``log``
together with the ``queues`` that point into it, then the ``index``. ``reading`` opens files so that
nothing can be changed by accident.
"""

from cometmq.store.check.checker import check
from cometmq.store.check.report import Finding, Kind, Report, Severity

__all__ = ["Finding", "Kind", "Report", "Severity", "check"]

"""Fill the cache with everything the interop tests use: ``python -m tests.interop.fetch``.

Tests fetch what they need by themselves; doing it before keeps their own time honest.
"""

import sys
import tempfile
import time
from pathlib import Path

from tests.interop import clients, maven
from tests.interop.cache import default_cache


def main() -> int:
    cache = default_cache()
    with tempfile.TemporaryDirectory(prefix="cometmq-fetch-") as folder:
        for name in (*maven.SETS, *clients.NAMES):
            begin = time.monotonic()
            if name in maven.SETS:
                maven.jars(cache, name)
            else:
                clients.client(cache, name, Path(folder))
            sys.stdout.write(f"{name}: {time.monotonic() - begin:.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

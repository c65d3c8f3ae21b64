"""Mixed traffic of Java and Python clients with a restart and a kill of the broker, for a while.

The program is ``bench.soak``; here it runs for half a minute, which is too short to judge memory.
"""

import random
from pathlib import Path

import pytest

from bench import soak
from bench.soak_plan import quick
from tests.interop import requirements

pytestmark = [pytest.mark.interop, pytest.mark.slow]


def test_nothing_goes_wrong_under_mixed_traffic_with_a_restart_and_a_kill(tmp_path: Path) -> None:
    requirements.need("java", "javac")
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")

    verdicts = soak.run(quick(random.Random(seed)), tmp_path, seed)

    print(*verdicts, sep="\n")
    assert [str(verdict) for verdict in verdicts if verdict.is_missed] == []

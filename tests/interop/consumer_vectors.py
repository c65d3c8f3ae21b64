"""Golden vectors of consumers: what Apache's own client classes decide, in ``tests/data/vectors``.

``python -m tests.interop.consumer_vectors`` makes the files anew with the client jars of both
releases, as ``tests.interop.vectors`` does with those of the servers.
"""

import json
import sys
import tempfile
from pathlib import Path

from tests.interop import java, vectors
from tests.interop.cache import Cache, default_cache
from tests.interop.commands import run
from tests.interop.vectors import Vector

RELEASES = ("4.9.8", "5.5.0")
KINDS = (
    "client-local-offsets",
    "client-process-queues",
    "client-strategies",
    "client-subscriptions",
)
TIMEOUT_S = 120


def make(cache: Cache, scratch: Path) -> dict[str, list[Vector]]:
    """Every kind of vector, made now by both releases."""
    made = {release: _make_release(cache, release, scratch) for release in RELEASES}
    return {
        kind: _merged({r: json.loads(_file(made[r], kind)) for r in RELEASES}) for kind in KINDS
    }


def _make_release(cache: Cache, release: str, scratch: Path) -> Path:
    made = scratch / f"consumers-{release}"
    sources = ("support", "consumer-vectors", f"consumer-vectors-{release}")
    class_path = java.compiled(cache, f"client-{release}", *sources)
    properties = {
        "file.encoding": "UTF-8",
        "rocketmq.client.localOffsetStoreDir": str(scratch / f"offsets-{release}"),
    }
    home = scratch / f"home-{release}"
    command = java.command(
        class_path, "cometmq.consumers.Main", [str(made)], home=home, properties=properties
    )
    run(command, timeout_s=TIMEOUT_S)
    return made


def _file(folder: Path, kind: str) -> str:
    return (folder / f"{kind}.json").read_text()


def _merged(by_release: dict[str, list[Vector]]) -> list[Vector]:
    """Both releases make vectors of the same inputs in the same order; equal ones stand once."""
    result: list[Vector] = []
    for made in zip(*by_release.values(), strict=True):
        old, new = made
        if old == new:
            result.append({"releases": list(RELEASES), **old})
        else:
            result += ({"releases": [r], **one} for r, one in zip(RELEASES, made, strict=True))
    return result


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="cometmq-vectors-") as scratch:
        vectors.write(make(default_cache(), Path(scratch)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Golden vectors: what Apache's own encoders make of chosen inputs, kept in ``tests/data/vectors``.

``python -m tests.interop.vectors`` makes the files anew with the jars of both releases. A vector
that both releases agree on is kept once; each line says which releases it holds for.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.interop import java
from tests.interop.cache import Cache, default_cache
from tests.interop.commands import run

FOLDER = Path(__file__).parents[1] / "data" / "vectors"
RELEASES = ("4.9.7", "5.5.0")
KINDS = (
    "batches",
    "client-producer-bans",
    "client-producer-checks",
    "client-producer-namespaces",
    "client-producer-properties",
    "client-producer-queues",
    "commands",
    "hashes",
    "json",
    "message-ids",
    "properties",
    "queue-extension",
    "records",
)
TIMEOUT_S = 120

Vector = dict[str, Any]


def read(kind: str, folder: Path = FOLDER) -> list[Vector]:
    """The committed vectors of one kind, each with its ``releases``."""
    vectors: list[Vector] = json.loads((folder / f"{kind}.json").read_text())
    return vectors


def make(cache: Cache, scratch: Path) -> dict[str, list[Vector]]:
    """Every kind of vector, made now by both releases."""
    folders = [make_release(cache, release, scratch) for release in RELEASES]
    return {
        kind: merged([json.loads((folder / f"{kind}.json").read_text()) for folder in folders])
        for kind in KINDS
    }


def make_release(cache: Cache, release: str, scratch: Path) -> Path:
    """The folder with the vectors of one release, as our Java program writes them."""
    made = scratch / f"vectors-{release}"
    sources = ("support", "vectors", f"vectors-{release}")
    class_path = java.compiled(cache, f"servers-{release}", *sources)
    arguments = [str(made), str(scratch / f"store-{release}")]
    home = scratch / f"home-{release}"
    utc = {"user.timezone": "UTC"}
    run(
        java.command(class_path, "cometmq.vectors.Main", arguments, home=home, properties=utc),
        timeout_s=TIMEOUT_S,
    )
    return made


def merged(by_release: Sequence[list[Vector]]) -> list[Vector]:
    """One list in which equal vectors of several releases stand once.

    A vector that only a later release has is put where it stood among its neighbours.
    """
    result: list[Vector] = []
    for release, vectors in zip(RELEASES, by_release, strict=True):
        place = 0
        for vector in vectors:
            same = next((i for i, known in enumerate(result) if _same(known, vector)), None)
            if same is None:
                result.insert(place, {"releases": [release], **vector})
                place += 1
            else:
                result[same]["releases"].append(release)
                place = same + 1
    return result


def write(vectors: dict[str, list[Vector]], folder: Path = FOLDER) -> None:
    """Keep the vectors as JSON with one vector on each line."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, all_of_kind in vectors.items():
        lines = (json.dumps(vector, separators=(",", ":")) for vector in all_of_kind)
        (folder / f"{kind}.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


def _same(known: Vector, vector: Vector) -> bool:
    return {name: value for name, value in known.items() if name != "releases"} == vector


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="cometmq-vectors-") as scratch:
        write(make(default_cache(), Path(scratch)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

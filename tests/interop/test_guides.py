"""The guides of the Python client hold for Apache's brokers, too: their examples run there."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import test_docs as docs
from tests.interop import apache
from tests.interop.apache import ApacheCluster
from tests.interop.cache import Cache

GUIDES = docs.DOCS / "guides"
PAGES = (
    *("consume", "delay", "duplicates", "migrating", "order", "pull", "retry", "send"),
    "transactions",
)
AS_THEY_ARE = {"retry"}
"""Pages whose names nobody else uses, and which also ask by them: without a namespace."""
NEEDS_5 = {"delay"}
PRINTED = {"transactions": "LocalState.COMMIT"}
"""What a page prints nowhere but here: our own broker refuses transactions."""
CLIENT = f'Client("{docs.UP_ADDRESS}"'

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def apache_5(cache: Cache, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    """One of its own: 5.5.0 uses a whole core from its first transaction to its end."""
    with apache.cluster(cache, "5.5.0", tmp_path_factory.mktemp("guides-5.5.0")) as started:
        yield started


def output_of(name: str, namesrv: str, folder: Path) -> str:
    """What the examples of a page print; a namespace keeps pages apart on one cluster."""
    page = (GUIDES / f"{name}.md").read_text()
    script = "\n".join(b.text for b in docs.blocks_in(page) if b.language == "python")
    assert CLIENT in script, name
    if name in AS_THEY_ARE:
        script = script.replace(docs.UP_ADDRESS, namesrv)
    script = script.replace(CLIENT, f'Client("{namesrv}", namespace="{name}"')
    assert docs.UP_ADDRESS not in script, name
    done = docs.run([sys.executable, "-W", "error", "-c", script], folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", PAGES)
def test_a_guide_holds_for_5_5_0(name: str, apache_5: ApacheCluster, tmp_path: Path) -> None:
    output = output_of(name, apache_5.namesrv.address, tmp_path)

    assert PRINTED.get(name, "") in output


@pytest.mark.parametrize("name", sorted({*PAGES} - NEEDS_5))
def test_a_guide_holds_for_4_9_7(name: str, apache_4: ApacheCluster, tmp_path: Path) -> None:
    output = output_of(name, apache_4.namesrv.address, tmp_path)

    assert PRINTED.get(name, "") in output

"""Guides with Spark and the streaming example do what they say, in the session of the tests."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts import tree
from scripts.demo_server import Server
from tests.house import test_docs as docs
from tests.spark.servers import Servers

MASTER = "spark://master-host:7077"
"""What the guides say for a cluster; here it is the session that runs already."""


@pytest.mark.parametrize("page", docs.SPARK_PAGES, ids=docs.name_of)
def test_a_guide_holds(
    page: Path, spark: Any, own_servers: Callable[..., Servers], tmp_path: Path
) -> None:
    places = {docs.UP_ADDRESS: own_servers().namesrv, MASTER: "local[2]", **docs.furnish(tmp_path)}
    script = docs.python_of(page)
    for shown, real in places.items():
        script = script.replace(shown, real)

    exec(compile(script, docs.name_of(page), "exec"), {"__name__": "guide"})


def test_revenue_is_streamed_as_a_plain_sum_has_it(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The example compares the numbers itself, and ends with an error if they differ."""
    with Server(tmp_path / "data") as server:
        monkeypatch.setenv("NAMESRV_ADDR", server.namesrv)
        runpy.run_path(str(tree.ROOT / "examples" / "revenue_stream.py"), run_name="__main__")

    *windows, last = capsys.readouterr().out.splitlines()
    assert windows[0] == "09:00 books 7.63, games 7.70, tools 6.57"
    assert len(windows) == 12
    assert last == "36 sums, each sent once, as a plain sum has them"

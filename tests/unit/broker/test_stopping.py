"""The end of a broker: what it knows is on disk then, whatever goes wrong."""

import asyncio
from pathlib import Path

import pytest

from cometmq.testing import LocalCluster

pytestmark = pytest.mark.slow


def test_the_tables_are_saved_although_the_store_cannot_be_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OverflowError("too large")

    async def scenario() -> None:
        async with LocalCluster(folder=tmp_path) as cluster:
            parts = cluster.broker.service.parts
            parts.offsets.commit("readers", "orders", 0, 7)
            monkeypatch.setattr(parts.store, "flush", fail)

            with pytest.raises(OverflowError):
                await cluster.broker.stop()

            assert parts.store.state.refusal == "the store is closed"

    asyncio.run(scenario())

    saved = (tmp_path / "broker-0" / "config" / "consumerOffset.json").read_text()
    assert '"orders@readers":{0:7' in saved.replace("\n", "").replace("\t", "").replace(" ", "")

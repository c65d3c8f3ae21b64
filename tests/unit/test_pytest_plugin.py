"""The fixtures for users, in a test run of their own."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cometmq.testing import pytest_plugin

CONFTEST = """
    import pytest

    pytest_plugins = ["cometmq.testing.pytest_plugin"]

    @pytest.fixture(scope="session")
    def cometmq_cluster_settings():
        return {"maxMessageSize": 1000}
"""

TESTS = """
    import asyncio

    import pytest
    from cometmq import SendFailed

    topics = set()

    @pytest.mark.parametrize("number", [1, 2])
    def test_what_is_sent_is_there(cometmq_client, cometmq_topic, number):
        topics.add(cometmq_topic)
        cometmq_client.producer().send(cometmq_topic, f"{number}")
        values = [message.value for message in cometmq_client.browse(cometmq_topic, codec=str)]
        assert values == [f"{number}"]

    def test_asyncio(cometmq_aio_client, cometmq_topic, cometmq_group):
        topics.add(cometmq_topic)

        async def consume():
            async with cometmq_aio_client as mq:
                consumer = mq.consumer(cometmq_group, start="first", codec=str)
                consumer.subscribe(cometmq_topic)
                await mq.producer().send(cometmq_topic, "one")
                async for message in consumer:
                    return message.value

        assert asyncio.run(consume()) == "one"

    def test_settings(cometmq_client, cometmq_topic):
        topics.add(cometmq_topic)
        with pytest.raises(SendFailed):
            cometmq_client.producer(compress_over_bytes=10_000, retries=0).send(
                cometmq_topic, b"x" * 2_000
            )

    def test_every_test_had_its_own_topic():
        assert len(topics) == 4
"""


@pytest.mark.slow
def test_the_fixtures_serve_a_test_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(textwrap.dedent(CONFTEST))
    (tmp_path / "test_mine.py").write_text(textwrap.dedent(TESTS))

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "."],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},  # may be relative to here
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert "5 passed" in done.stdout, done.stdout + done.stderr


def test_names_of_topics_are_short_and_have_allowed_characters() -> None:
    name = pytest_plugin.unique_name("test_ü[a b/c]" + "x" * 200)

    assert len(name) <= 127
    assert name.isascii()
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")

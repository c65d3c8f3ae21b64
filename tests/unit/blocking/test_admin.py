"""The admin library without asyncio."""

import inspect
from collections.abc import Iterator
from functools import cached_property

import pytest

from cometmq import Client, NotFound
from cometmq.admin import Admin as AioAdmin
from cometmq.blocking import admin
from cometmq.testing import LocalCluster
from cometmq.testing.local_cluster import BlockingCluster

SUBJECTS = ("brokers", "clients", "groups", "messages", "name_servers", "offsets", "topics")


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    with LocalCluster() as cluster:
        cluster.create_topic("orders")
        yield cluster


@pytest.mark.parametrize("subject", SUBJECTS)
def test_each_subject_has_all_its_methods(subject: str) -> None:
    there = type(getattr(AioAdmin("127.0.0.1:1"), subject))

    here = getattr(admin, there.__name__)

    assert public(here) == public(there)


def test_all_subjects_are_there() -> None:
    found = {name for name, what in vars(AioAdmin).items() if isinstance(what, cached_property)}

    assert found == set(SUBJECTS)


def test_methods_keep_what_is_said_about_them() -> None:
    there = type(AioAdmin("127.0.0.1:1").topics)

    assert admin.Topics.describe.__doc__ == there.describe.__doc__
    assert inspect.getdoc(admin.Messages.browse) == inspect.getdoc(
        type(AioAdmin("127.0.0.1:1").messages).browse
    )


@pytest.mark.slow
def test_questions_are_answered_on_the_connections_of_the_client(
    cluster: BlockingCluster,
) -> None:
    with Client(cluster.namesrv) as client:
        client.producer().send("orders", b"one")
        asked = client.admin()
        names = {topic.name for topic in asked.topics.list()}
        bodies = [message.body for message in asked.messages.browse("orders")]
        with pytest.raises(NotFound):
            asked.topics.describe("nobody")

        assert "orders" in names
        assert bodies == [b"one"]
        assert asked.name_servers.addresses == (cluster.namesrv,)
        assert len(asked.cluster().brokers) == 1


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}

import pytest

from cometmq.model.system_names import (
    NOT_SENDABLE,
    SYSTEM_GROUPS,
    SYSTEM_TOPICS,
    is_legal_name,
    is_system_group,
    is_system_topic,
)
from tests.interop import vectors


def test_what_cannot_be_sent_to_is_the_systems() -> None:
    assert NOT_SENDABLE < SYSTEM_TOPICS


@pytest.mark.parametrize("name", ["TBW102", "rmq_sys_anything", "RMQ_SYS_TRACE_TOPIC"])
def test_topics_of_the_system_are_told_by_name_or_prefix(name: str) -> None:
    assert is_system_topic(name)


@pytest.mark.parametrize("name", ["orders", "RMQ_SYS_anything", "TBW1023"])
def test_other_topics_are_the_users(name: str) -> None:
    assert not is_system_topic(name)


def test_groups_of_the_system_are_told_by_name_or_prefix() -> None:
    assert is_system_group("CID_RMQ_SYS_anything")
    assert all(map(is_system_group, SYSTEM_GROUPS))
    assert not is_system_group("billing")


@pytest.mark.parametrize("name", ["orders", "%RETRY%g", "a|b", "A-1_z"])
def test_names_have_letters_digits_and_four_more_characters(name: str) -> None:
    assert is_legal_name(name)


@pytest.mark.parametrize("name", ["", " ", "a b", "a.b", "é", "a\n", "\x00"])
def test_names_have_no_other_characters(name: str) -> None:
    assert not is_legal_name(name)


def test_java_leaves_the_same_topics_without_a_namespace() -> None:
    wrapped = {one["name"]: one["wrapped"] for one in newest("ns") if "%" not in one["name"]}
    left = {name for name, found in wrapped.items() if name and found == name}

    assert left == {name for name in wrapped if is_system_topic(name)} | {
        name for name in wrapped if name.startswith("CID_RMQ_SYS_")
    }
    assert left >= SYSTEM_TOPICS


def newest(namespace: str) -> list[vectors.Vector]:
    return [
        one
        for one in vectors.read("client-producer-namespaces")
        if one["namespace"] == namespace and "5.5.0" in one["releases"]
    ]

"""Answers are held against each other field by field, and nothing is let through unnamed."""

from collections.abc import Mapping

import pytest

from tests.interop import mqadmin_cases
from tests.interop.mqadmin_cases import Case, Comparison, Step


def comparison(
    *,
    volatile: Mapping[str, str] | None = None,
    differs: Mapping[str, str] | None = None,
    ours_alone: Mapping[str, str] | None = None,
    is_with_itself: bool = False,
) -> Comparison:
    case = Case(
        "topicStatus",
        ("5.5.0",),
        (Step("topicStatus -t T"),),
        volatile or {},
        {"5.5.0": differs or {}},
        {"5.5.0": ours_alone or {}},
    )
    return Comparison(case, "5.5.0", is_with_itself=is_with_itself)


@pytest.mark.parametrize(
    ("ours", "apaches"), [({"a": "1"}, {"a": "2"}), ({"a": "1"}, {}), ({}, {"a": "1"})]
)
def test_a_field_that_is_not_named_must_be_equal(
    ours: dict[str, str], apaches: dict[str, str]
) -> None:
    (difference,) = comparison().differences(ours, apaches)

    assert difference.field == "a"


def test_a_volatile_field_must_be_there_and_have_its_form() -> None:
    held = comparison(volatile={"*.time": r"\d+"})

    assert not held.differences({"q.time": "1"}, {"q.time": "2"})
    assert held.differences({"q.time": "soon"}, {"q.time": "2"})
    assert held.differences({}, {"q.time": "2"})


def test_what_ours_does_otherwise_is_let_through_by_name() -> None:
    held = comparison(differs={"version": "later"}, ours_alone={"timer*": "newer"})

    assert not held.differences({"version": "5", "timers": "0"}, {"version": "4"})
    assert not held.unmet()


def test_what_ours_alone_may_have_is_equal_where_both_have_it() -> None:
    held = comparison(ours_alone={"*": "more settings"})

    assert held.differences({"a": "1"}, {"a": "2"})


def test_a_difference_that_is_named_and_is_none_is_told() -> None:
    held = comparison(differs={"version": "later"})

    held.differences({"version": "5"}, {"version": "5"})

    assert held.unmet() == ["version is named as different, but is equal or in neither"]


def test_apaches_held_against_itself_may_not_differ() -> None:
    held = comparison(differs={"version": "later"}, is_with_itself=True)

    assert held.differences({"version": "5"}, {"version": "4"})
    assert not held.unmet()


def test_what_an_answer_must_have_is_missed_when_it_is_not_there() -> None:
    answer = {"q0.perm": "6", "q1.perm": "4"}

    assert not mqadmin_cases.lacks(answer, {"*.perm": "[46]"})
    assert mqadmin_cases.lacks(answer, {"*.perm": "6"})
    assert mqadmin_cases.lacks(answer, {"*.none": ".*"})


def test_the_file_names_each_case_once() -> None:
    names = [
        (release, case.name) for case in mqadmin_cases.load().cases for release in case.releases
    ]

    assert len(names) == len(set(names))


def test_whatever_is_not_compared_has_a_reason() -> None:
    book = mqadmin_cases.load()

    reasons = [
        *book.not_compared.values(),
        *(why for case in book.cases for named in case.differs.values() for why in named.values()),
        *(
            why
            for case in book.cases
            for named in case.ours_alone.values()
            for why in named.values()
        ),
    ]

    assert all(len(reason) >= 8 for reason in reasons)

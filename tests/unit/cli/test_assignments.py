import pytest

from cometmq.cli.assignments import assignments, wanted_values
from cometmq.cli.problems import Misuse
from cometmq.errors import NotFound


def test_a_value_may_be_empty_and_may_have_equal_signs() -> None:
    assert assignments(["a=1", "b=", "c=x=y"]) == {"a": "1", "b": "", "c": "x=y"}


@pytest.mark.parametrize("texts", [["a"], ["=1"], [" =1"], ["a=1", "a=2"]])
def test_what_sets_nothing_is_refused(texts: list[str]) -> None:
    with pytest.raises(Misuse):
        assignments(texts)


def test_no_keys_mean_all() -> None:
    values = {"a": "1", "b": "2"}

    assert wanted_values(values, [], "here") == values
    assert wanted_values(values, ["b"], "here") == {"b": "2"}


def test_a_key_that_is_not_there_is_named_with_the_one_that_was_meant() -> None:
    values = {"fileReservedTime": "72"}

    with pytest.raises(NotFound, match="did you mean 'fileReservedTime'"):
        wanted_values(values, ["fileReserveTime"], "here")
    with pytest.raises(NotFound, match="here does not have it"):
        wanted_values(values, ["x"], "here")

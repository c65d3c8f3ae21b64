"""Which variants of a test an ordinary run of the suite takes."""

from pathlib import Path

import pytest

from tests import variants

pytest_plugins = ["pytester"]

CONFTEST = """
from tests import variants

def pytest_collection_modifyitems(config, items):
    variants.choose(config, items, "tests_of_clients")
"""

TESTS = """
import pytest

@pytest.mark.parametrize("name", ["go", "cpp", pytest.param("node", marks=pytest.mark.skip)])
@pytest.mark.parametrize("size", [1, 2])
def test_of_sizes(size, name):
    assert name != "node"

@pytest.mark.parametrize(("name", "release"), [("go", "4.9.7"), ("go", "5.5.0")])
def test_of_pairs(name, release):
    pass

@pytest.mark.parametrize("command", ["topic", "group"])
def test_of_no_client(command):
    pass

def test_alone():
    pass
"""


@pytest.fixture
def folder(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(variants.VARIABLE, raising=False)
    monkeypatch.setenv("COMETMQ_SEED", "1")
    tests = pytester.mkdir("tests_of_clients")
    (tests / "conftest.py").write_text(CONFTEST)
    (tests / "test_variants.py").write_text(TESTS)
    return tests


def run(pytester: pytest.Pytester) -> pytest.RunResult:
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-v")


def passed(result: pytest.RunResult) -> list[str]:
    lines = [line for line in result.outlines if " PASSED" in line]
    return [line.split("::")[1].split(" ")[0] for line in lines]


@pytest.mark.usefixtures("folder")
def test_everything_is_run_unless_one_of_each_is_asked_for(pytester: pytest.Pytester) -> None:
    assert len(passed(run(pytester))) == 4 + 2 + 2 + 1


@pytest.mark.usefixtures("folder")
def test_one_of_each_keeps_every_test_and_every_case_of_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variants.VARIABLE, variants.ONE)

    result = run(pytester)

    names = passed(result)
    assert len(names) == 2 + 1 + 2 + 1
    assert {"test_alone", "test_of_no_client[topic]", "test_of_no_client[group]"} < set(names)
    assert sum(name.startswith("test_of_sizes[1") for name in names) == 1
    assert sum(name.startswith("test_of_sizes[2") for name in names) == 1
    result.stdout.fnmatch_lines(["*tests_of_clients: one variant of each test, COMETMQ_SEED=1"])


@pytest.mark.usefixtures("folder")
def test_a_seed_repeats_a_choice_and_over_time_every_variant_comes_round(
    pytester: pytest.Pytester,
) -> None:
    items, _ = pytester.inline_genitems()

    choices = [
        {item.name for item in variants.one_of_each(items, seed).chosen} for seed in range(30)
    ]

    assert choices[3] == {item.name for item in variants.one_of_each(items, 3).chosen}
    able = {item.name for item in items if not variants.is_skipped(item)}
    assert set().union(*choices) == able

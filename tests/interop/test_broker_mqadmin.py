"""Apache's admin tool sees in our broker, field by field, what it sees in Apache's own.

``mqadmin.toml`` names the commands. With ``COMETMQ_INTEROP_BROKER=5.5.0`` a second broker of Apache
stands in for ours: then whatever is not volatile must be equal.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from fnmatch import fnmatchcase

import pytest

from tests.interop import (
    mqadmin_cases,
    mqadmin_fields,
    mqadmin_scenario,
    mqadmin_text,
)
from tests.interop.admin_shell import AdminShell
from tests.interop.broker_fixtures import BROKER, OURS
from tests.interop.cache import Cache
from tests.interop.mqadmin_cases import Case, Comparison, Step
from tests.interop.mqadmin_scenario import Pair, Side
from tests.interop.mqadmin_text import Fields

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

TOOLS = {"4.9.7": "4.9.8", "5.5.0": "5.5.0"}
IN_PLACE_OF_OURS = None if BROKER == OURS else BROKER
RELEASES = [release for release in TOOLS if IN_PLACE_OF_OURS in (None, release)]
EVENTUALLY_S = 30.0
POLL_S = 0.2

BOOK = mqadmin_cases.load()


@pytest.fixture(scope="module")
def pair(
    cache: Cache,
    admin_shell: Callable[[str], AdminShell],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], Pair]]:
    """``pair("5.5.0")``: ours and Apache's, filled alike, started when first asked for."""
    started: dict[str, Pair] = {}
    with ExitStack() as stack:

        def get(release: str) -> Pair:
            if release not in started:
                started[release] = stack.enter_context(
                    mqadmin_scenario.running(
                        cache,
                        release,
                        admin_shell(TOOLS[release]),
                        tmp_path_factory.mktemp(f"mqadmin-{release}"),
                        in_place_of_ours=IN_PLACE_OF_OURS,
                    )
                )
            return started[release]

        yield get


@pytest.mark.parametrize(
    ("release", "case"),
    [
        pytest.param(release, case, id=f"{release}-{case.name.replace(' ', '-')}")
        for release in RELEASES
        for case in BOOK.cases
        if release in case.releases
    ],
)
def test_a_command_prints_the_same_of_both(
    pair: Callable[[str], Pair], release: str, case: Case
) -> None:
    both = pair(release)
    comparison = Comparison(case, release, is_with_itself=IN_PLACE_OF_OURS is not None)

    for step in case.steps:
        problems = _problems_in_the_end(both, comparison, step)

        assert not problems, f"{step.run}\n" + "\n".join(problems)
    assert not comparison.unmet()


def test_every_command_of_the_tool_is_accounted_for(
    admin_shell: Callable[[str], AdminShell],
) -> None:
    compared = {case.command for case in BOOK.cases}
    named = compared | BOOK.with_name_servers.keys() | BOOK.not_compared.keys()

    known = set()
    for tool in TOOLS.values():
        known |= set(re.findall(r"^   (\w+) +\S", admin_shell(tool)(), re.MULTILINE))

    assert named == known
    assert not compared & BOOK.not_compared.keys()
    assert len(compared) >= 40


def _problems_in_the_end(both: Pair, comparison: Comparison, step: Step) -> list[str]:
    """What is wrong with a step, looked at until nothing is if it may take a while."""
    deadline = time.monotonic() + EVENTUALLY_S
    while (problems := _problems(both, comparison, step)) and step.is_eventual:
        if time.monotonic() >= deadline:
            break
        time.sleep(POLL_S)
    return problems


def _problems(both: Pair, comparison: Comparison, step: Step) -> list[str]:
    answers = [_answer(side, step) for side in both.sides]
    problems = [str(difference) for difference in comparison.differences(*answers)]
    for side, answer in zip(both.sides, answers, strict=True):
        problems += [f"{side.name}: {lack}" for lack in mqadmin_cases.lacks(answer, step.must)]
        if answer.get("refused") != (None if step.refused is None else str(step.refused)):
            problems.append(f"{side.name}: refused with {answer.get('refused')}: {answer}")
        if not answer and not step.ours_lacks:
            problems.append(f"{side.name}: no answer")
    if step.ours_lacks and IN_PLACE_OF_OURS is None:
        left = [path for path in answers[0] if fnmatchcase(path, step.ours_lacks)]
        problems += [f"ours still has {path}" for path in left]
    return problems


def _answer(side: Side, step: Step) -> Fields:
    """The fields of what a side answers; of a refusal its code and description."""
    command, *options = step.argv(side.places)
    if command == "@received":
        return {"received": str(side.received(*options))}
    limit = [f"@within {step.within_ms}"] if step.within_ms else []
    text = side.neutral(side.shell(*limit, command, "-n", side.namesrv.address, *options))
    assert "usage: mqadmin" not in text, text
    if (refusal := mqadmin_fields.failure(text)) is not None:
        return {"refused": str(refusal.code), "description": refusal.description}
    if step.file:
        return mqadmin_text.json_fields(side.neutral((side.folder / step.file).read_text()))
    return mqadmin_text.fields(text)

"""The Python side of the feature programs, tried with a program that only pretends."""

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.feature_shell import FeatureProgram, Launch, ShellError

pytestmark = pytest.mark.slow

PRETENDER = textwrap.dedent(
    """
    import json, sys

    def say(number, event, **facts):
        print(json.dumps({"id": number, "event": event, **facts}), flush=True)

    print("some noise of the client")
    say(0, "ready")
    for line in sys.stdin:
        command = json.loads(line)
        number, options = command["id"], command["options"]
        if command["verb"] == "die":
            sys.exit("died as told")
        if command["verb"] == "fail":
            say(number, "failed", error="no such luck")
            continue
        if command["verb"] == "consume":
            for body in options["bodies"]:
                say(number, "received", body=body, outcome="ok")
        else:
            say(number, "echo", options=options)
        print("more noise")
        say(number, "done")
    """
)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[FeatureProgram]:
    launch = Launch((sys.executable, "-c", PRETENDER))
    with FeatureProgram("pretender", launch, tmp_path) as started:
        yield started


def test_a_command_gives_its_events_without_the_noise(program: FeatureProgram) -> None:
    first = program.call("say", text="é")
    second = program.call("say", text="b")

    assert [event["options"] for event in first] == [{"text": "é"}]
    assert [event["options"] for event in second] == [{"text": "b"}]


def test_a_command_that_fails_raises_what_the_program_said(program: FeatureProgram) -> None:
    with pytest.raises(ShellError, match="no such luck"):
        program.call("fail")


def test_a_program_that_ends_raises_its_last_lines(program: FeatureProgram) -> None:
    with pytest.raises(ShellError, match=r"(?s)pretender ended.*died as told"):
        program.call("die")


def test_a_consumer_gives_what_it_received(program: FeatureProgram) -> None:
    consumer = program.consume("a", bodies=["x", "y"])

    received = consumer.wait_for(["y"])

    assert [event["body"] for event in received] == ["x", "y"]


def test_a_message_that_never_comes_is_an_error_that_shows_what_came(
    program: FeatureProgram,
) -> None:
    consumer = program.consume("a", bodies=["x"])

    with pytest.raises(ShellError, match=r'(?s)receive 1 messages.*"body": "x"'):
        consumer.wait_for(["z"], timeout_s=0.05)

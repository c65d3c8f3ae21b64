import json

import pytest
from click.testing import CliRunner

from cometmq.admin.topics import QueueStats
from cometmq.cli.app import app
from cometmq.cli.commands.delay import explained_refusal, pending_levels
from cometmq.codec.recall_handle import RecallHandle, encode
from cometmq.errors import Refused, Unsupported


def queue(queue_id: int, min_offset: int, max_offset: int) -> QueueStats:
    return QueueStats("broker-a", queue_id, min_offset, max_offset, max_offset - min_offset, 0)


def pending(values: dict[str, str], *queues: QueueStats) -> dict[int, tuple[str | None, int]]:
    rows = pending_levels("broker-a", queues, values, ["1s", "5s"])
    return {row["level"]: (row["delay"], row["pending"]) for row in rows}


def test_what_a_level_has_not_delivered_yet_is_pending() -> None:
    found = pending({"scheduleMessageOffset_1": "3,9"}, queue(0, 0, 10), queue(1, 0, 0))

    assert found == {1: ("1s", 7), 2: ("5s", 0)}


def test_a_level_that_never_delivered_anything_has_all_of_it_pending() -> None:
    assert pending({}, queue(1, 2, 5)) == {1: ("1s", 0), 2: ("5s", 3)}


def test_a_level_that_the_broker_no_longer_has_is_still_shown() -> None:
    assert pending({"scheduleMessageOffset_3": "x"}, queue(2, 0, 4))[3] == (None, 4)


@pytest.mark.parametrize(
    ("code", "remark", "advice"),
    [
        (16, "recall failed, operation is forbidden", "recallMessageEnable=true"),
        (604, "recall failed, timestamp invalid", "it was delivered already"),
        (1, "anything else", ""),
    ],
)
def test_a_refusal_is_explained(code: int, remark: str, advice: str) -> None:
    error = explained_refusal(Refused("h:1", "RECALL_MESSAGE", code, remark))

    assert isinstance(error, Refused)
    assert advice in error.next_step
    assert remark in error.fact


def test_a_broker_that_is_too_old_is_said_to_be() -> None:
    error = explained_refusal(Refused("h:1", "RECALL_MESSAGE", 3, "not supported"))

    assert isinstance(error, Unsupported)
    assert "5.3.2" in error.next_step


def test_what_is_no_handle_is_refused_before_anybody_is_asked() -> None:
    result = CliRunner().invoke(app, ["delay", "cancel", "nonsense", "--namesrv", "h:1"])

    assert (result.exit_code, result.stdout) == (2, "")
    assert "recall handle" in result.stderr


def test_nobody_is_asked_to_take_back_a_message_by_mistake() -> None:
    handle = encode(RecallHandle("orders", "broker-a", 1_800_000_000_000, "0A01"))
    command = ["delay", "cancel", handle, "--namesrv", "127.0.0.1:1"]

    refused = CliRunner().invoke(app, command)
    planned = CliRunner().invoke(app, [*command, "--dry-run", "-o", "json"])

    assert refused.exit_code == 2
    assert "not sure whether to take back message '0A01' of topic 'orders'" in refused.stderr
    assert planned.exit_code == 0
    told = json.loads(planned.stdout)
    assert (told["message_id"], told["cancelled"]) == ("0A01", False)

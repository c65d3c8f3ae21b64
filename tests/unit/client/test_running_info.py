"""What a consumer tells of itself when it is asked."""

import asyncio
import threading

from cometmq.client import running_info
from cometmq.client.core.settings import LiteSettings, PullSettings
from cometmq.model.group import ConsumeType


def told(settings: LiteSettings | PullSettings) -> dict[str, str]:
    return running_info.properties(
        settings,
        group="billing",
        consume_type=ConsumeType.CONSUME_ACTIVELY,
        name_servers=("10.0.0.1:9876", "10.0.0.2:9876"),
        began_ms=17,
    )


def test_every_setting_is_told_by_the_name_that_rocketmq_has_for_it() -> None:
    found = told(LiteSettings(pull_count=7, is_auto_commit=False))

    assert found["pullBatchSize"] == "7"
    assert found["autoCommit"] == "false"
    assert found["messageModel"] == "cluster"
    assert found["allocateMessageQueueStrategy"] == "AVG"


def test_a_setting_of_our_own_has_our_name() -> None:
    assert told(PullSettings())["schedule_pause_ms"] == "200"


def test_tools_find_what_they_look_for() -> None:
    found = told(PullSettings())

    assert found["consumerGroup"] == "billing"
    assert found["PROP_NAMESERVER_ADDR"] == "10.0.0.1:9876;10.0.0.2:9876;"
    assert found["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
    assert found["PROP_CLIENT_VERSION"] == "V5_5_0"
    assert found["PROP_CONSUMEORDERLY"] == "false"
    assert found["PROP_CONSUMER_START_TIMESTAMP"] == "17"


async def test_stacks_show_threads_and_tasks() -> None:
    async def a_task_that_waits() -> None:
        await asyncio.Event().wait()

    task = asyncio.ensure_future(a_task_that_waits())
    await asyncio.sleep(0)

    text = running_info.stacks()

    assert f"thread {threading.current_thread().name}" in text
    assert "a_task_that_waits" in text
    task.cancel()

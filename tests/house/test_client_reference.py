"""The reference of the Python client is current, complete, and has RocketMQ's defaults."""

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

from cometmq import aio
from cometmq.blocking import client as blocking_client
from cometmq.blocking import consumer, lite_consumer, producer, pull_consumer, transactions
from cometmq.client.core import settings
from cometmq.client.core.options import option_of
from cometmq.client.core.strategies import Average
from cometmq.client.lite_consumer import LiteConsumer
from cometmq.client.producer import Producer
from cometmq.client.pull_consumer import PullConsumer
from cometmq.client.push_consumer import Consumer
from cometmq.client.transactions import TransactionProducer
from scripts import client_reference

ROOT = Path(__file__).parents[2]
SECOND, MINUTE = 1_000, 60_000
MIB = 1024 * 1024

# What RocketMQ's Java client has, 5.3.3 where it differs from 4.9.8; in our units.
DEFAULTS: dict[type, dict[str, Any]] = {
    settings.ClientSettings: {
        "instanceName": "DEFAULT",
        "unitName": None,
        "unitMode": False,
        "vipChannelEnabled": False,
        "pollNameServerInterval": 30 * SECOND,
        "heartbeatBrokerInterval": 30 * SECOND,
        "persistConsumerOffsetInterval": 5 * SECOND,
        "mqClientApiTimeout": 3 * SECOND,
        "com.rocketmq.remoting.client.connect.timeout": 3 * SECOND,
        "com.rocketmq.remoting.client.channel.maxIdleTimeSeconds": 120,
        "rocketmq.client.rebalance.waitInterval": 20 * SECOND,
        "rocketmq.client.rebalance.minInterval": 1 * SECOND,
        "rocketmq.client.rebalance.lockInterval": 20 * SECOND,
    },
    settings.ProducerSettings: {
        "createTopicKey": "TBW102",
        "defaultTopicQueueNums": 4,
        "sendMsgTimeout": 3 * SECOND,
        "sendMsgMaxTimeoutPerRequest": -1,
        "compressMsgBodyOverHowmuch": 4_096,
        "rocketmq.message.compressLevel": 5,
        "rocketmq.message.compressType": "zlib",
        "retryTimesWhenSendFailed": 2,
        "retryAnotherBrokerWhenNotStoreOK": False,
        "maxMessageSize": 4_194_304,
        "sendLatencyFaultEnable": "off",
        "startDetectorEnable": False,
        "autoBatch": False,
        "batchMaxDelayMs": 10,
        "batchMaxBytes": 32 * 1024,
        "totalBatchMaxBytes": 32 * MIB,
        "enableTrace": False,
        "traceTopic": "RMQ_SYS_TRACE_TOPIC",
    },
    settings.ConsumerSettings: {
        "messageModel": "cluster",
        "allocateMessageQueueStrategy": Average,
        "consumeFromWhere": "last",
        "consumeThreadMax": 20,
        "consumeMessageBatchMaxSize": 1,
        "pullBatchSize": 32,
        "pullBatchSizeInBytes": 262_144,
        "pullThresholdForQueue": 1_000,
        "pullThresholdSizeForQueue": 100,
        "consumeConcurrentlyMaxSpan": 2_000,
        "pullThresholdForTopic": -1,
        "pullThresholdSizeForTopic": -1,
        "pullInterval": 0,
        "postSubscriptionWhenPull": False,
        "pullTimeDelayMillsWhenException": 1 * SECOND,
        "brokerSuspendMaxTimeMillis": 15 * SECOND,
        "consumerTimeoutMillisWhenSuspend": 30 * SECOND,
        "maxReconsumeTimes": -1,
        "suspendCurrentQueueTimeMillis": 1 * SECOND,
        "consumeTimeout": 15 * MINUTE,
        "rocketmq.client.pull.pullMaxIdleTime": 120 * SECOND,
        "rocketmq.client.rebalance.lockMaxLiveTime": 30 * SECOND,
        "rocketmq.client.maxTimeConsumeContinuously": 60 * SECOND,
        "enableTrace": False,
        "traceTopic": "RMQ_SYS_TRACE_TOPIC",
    },
    settings.LiteSettings: {
        "messageModel": "cluster",
        "allocateMessageQueueStrategy": Average,
        "consumeFromWhere": "last",
        "brokerSuspendMaxTimeMillis": 20 * SECOND,
        "consumerTimeoutMillisWhenSuspend": 30 * SECOND,
        "pullTimeDelayMillsWhenException": 1 * SECOND,
        "autoCommit": True,
        "autoCommitIntervalMillis": 5 * SECOND,
        "pollTimeoutMillis": 5 * SECOND,
        "pullThreadNums": 20,
        "pullBatchSize": 10,
        "pullThresholdForAll": 10_000,
        "pullThresholdForQueue": 1_000,
        "pullThresholdSizeForQueue": 100,
        "consumeMaxSpan": 2_000,
        "topicMetadataCheckIntervalMillis": 30 * SECOND,
    },
    settings.PullSettings: {
        "messageModel": "cluster",
        "allocateMessageQueueStrategy": Average,
        "enableRebalance": True,
        "brokerSuspendMaxTimeMillis": 20 * SECOND,
        "consumerTimeoutMillisWhenSuspend": 30 * SECOND,
        "consumerPullTimeoutMillis": 10 * SECOND,
        "maxReconsumeTimes": 16,
        "pullThreadNums": 20,
    },
}

FOUND_OUT = {"clientIP", "rocketmq.client.localOffsetStoreDir"}
"""Keys whose default depends on the machine."""

OURS: dict[type, dict[str, int | bool]] = {
    settings.ClientSettings: {"drain_timeout_ms": 5 * SECOND},
    settings.ProducerSettings: {"in_flight_max": 65_535},
    settings.ConsumerSettings: {"is_orderly": False, "resend_pause_ms": 5 * SECOND},
    settings.LiteSettings: {},
    settings.PullSettings: {"schedule_pause_ms": 200, "schedule_failure_pause_ms": 1 * SECOND},
}
"""Options that have no key of RocketMQ: constants of its code, or ours alone."""

NOT_TAKEN_OVER = {
    "accessChannel", "adjustThreadPoolNumsThreshold", "awaitTerminationMillisWhenShutdown",
    "checkRequestHoldMax", "checkThreadPoolMaxSize", "checkThreadPoolMinSize",
    "clientCallbackExecutorThreads", "clientCloseSocketIfTimeout", "clientRebalance",
    "consumeThreadMin", "consumeTimestamp", "consumerPullTimeoutMillis", "decodeDecompressBody",
    "decodeReadBody", "detectInterval", "detectTimeout", "enableBackpressureForAsyncMode",
    "enableHeartbeatChannelEventListener", "enableReconnectForGoAway", "enableStreamRequestType",
    "namesrvAddr", "popBatchNums", "popInvisibleTime", "popThresholdForQueue",
    "retryTimesWhenSendAsyncFailed", "traceMsgBatchNum", "useHeartbeatV2", "useTLS",
}  # fmt: skip
"""The settings of Java's client that are in no settings class here."""

FLAVOURS: tuple[tuple[type, type], ...] = (
    (aio.Client, blocking_client.Client),
    (Producer, producer.Producer),
    (TransactionProducer, transactions.TransactionProducer),
    (Consumer, consumer.Consumer),
    (LiteConsumer, lite_consumer.LiteConsumer),
    (PullConsumer, pull_consumer.PullConsumer),
)


def keyed(cls: type) -> dict[str, Any]:
    return {
        option_of(field).key: type(field.default)
        if isinstance(field.default, Average)
        else field.default
        for field in dataclasses.fields(cls)
        if option_of(field).key and option_of(field).key not in FOUND_OUT
    }


def test_the_page_is_current() -> None:
    page = (ROOT / "docs/reference/client.md").read_text(encoding="utf-8")

    assert page == client_reference.page(), "run: python -m scripts.client_reference"


def test_every_settings_class_is_on_the_page() -> None:
    declared = {
        cls for name, cls in vars(settings).items() if re.fullmatch(r"[A-Z]\w+Settings", name)
    }

    assert declared == {cls for _, _, cls in client_reference.OPTIONS}


def test_defaults_are_those_of_rocketmq() -> None:
    assert {cls: keyed(cls) for cls in DEFAULTS} == DEFAULTS


def test_defaults_without_a_key_are_those_that_were_decided() -> None:
    found = {
        cls: {f.name: f.default for f in dataclasses.fields(cls) if not option_of(f).key}
        for cls in OURS
    }

    assert found == OURS


def test_every_setting_of_rocketmq_has_an_option_or_a_reason() -> None:
    assert set(client_reference.WITHOUT_COUNTERPART) == NOT_TAKEN_OVER
    assert all(client_reference.WITHOUT_COUNTERPART.values())


def test_every_argument_of_a_client_is_explained() -> None:
    parameters = inspect.signature(aio.Client).parameters.values()
    named = {p.name for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD}

    assert named == set(client_reference.ARGUMENTS)


def test_both_flavours_have_the_same_names() -> None:
    differences = {
        cls.__name__: client_reference.public_names(cls) ^ client_reference.public_names(other)
        for cls, other in FLAVOURS
    }

    assert {name: found for name, found in differences.items() if found} == {
        "Producer": {"send_async"}
    }

"""What to do about the refusal of a broker, by its code; its own words say what it refuses."""

from collections.abc import Mapping
from typing import Final

from cometmq.codec.codes import ResponseCode

NO_ADDRESS: Final = "is the broker running, and does it register with these name servers?"
"""No route says where a broker is."""

_BUSY: Final = "it has too much to do: send less at a time, or try again later"
_SUBSCRIBE: Final = "do all members of the group subscribe alike? else it heals by itself, soon"

# Not of SYSTEM_ERROR, which may mean anything: who asked knows better what to do about it.
_ADVICE: Final[Mapping[int, str]] = {
    ResponseCode.SYSTEM_BUSY: _BUSY,
    ResponseCode.FLOW_CONTROL: _BUSY,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "its release does not know this: use a newer one",
    ResponseCode.MESSAGE_ILLEGAL: (
        "is it too large (maxMessageSize), or is its delay too long (timerMaxDelaySec)?"
    ),
    ResponseCode.SERVICE_NOT_AVAILABLE: "is its disk full, is it a slave, or about to stop?",
    ResponseCode.NO_PERMISSION: "do broker, topic and group permit it, are the keys right?",
    ResponseCode.TOPIC_NOT_EXIST: "create the topic, or let brokers do so (autoCreateTopicEnable)",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "mend the expression of the subscription",
    ResponseCode.SUBSCRIPTION_NOT_EXIST: _SUBSCRIBE,
    ResponseCode.SUBSCRIPTION_NOT_LATEST: _SUBSCRIBE,
    ResponseCode.FILTER_DATA_NOT_EXIST: _SUBSCRIBE,
    ResponseCode.FILTER_DATA_NOT_LATEST: _SUBSCRIBE,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: (
        "create the group, or let brokers do so (autoCreateSubscriptionGroup)"
    ),
    ResponseCode.GO_AWAY: "it is about to stop: try again later",
}


def advice(code: int) -> str:
    """The next step, empty where nothing is known that helps."""
    return _ADVICE.get(code, "")

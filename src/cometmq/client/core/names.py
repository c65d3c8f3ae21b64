"""Namespaces: every topic and group of a client gets one in front, and users never see it.

With namespace ``ns`` the topic ``orders`` is ``ns%orders`` to servers, the retry topic of the group
``billing`` is ``%RETRY%ns%billing``. Names that are RocketMQ's own stay, and so do names that have
the namespace already. No namespace is None or an empty string.
"""

from cometmq.client.core.checks import check_is_queue
from cometmq.model.offsets import MessageQueue
from cometmq.model.system_names import SYSTEM_GROUP_PREFIX, is_system_topic
from cometmq.model.topic import DLQ_PREFIX, RETRY_PREFIX

SEPARATOR = "%"
"""Between a namespace and a name."""


def wrap_topic(namespace: str | None, topic: str) -> str:
    """The topic as servers know it; retry and dead-letter topics keep their prefix in front."""
    if not namespace or not topic or _is_system(topic):
        return topic
    prefix, name = _split(topic)
    mark = namespace + SEPARATOR
    return topic if name.startswith(mark) else prefix + mark + name


def unwrap_topic(namespace: str | None, topic: str) -> str:
    """The topic as users know it; one of another namespace stays as it is."""
    if not namespace or not topic:
        return topic
    prefix, name = _split(topic)
    return prefix + name.removeprefix(namespace + SEPARATOR)


def wrap_group(namespace: str | None, group: str) -> str:
    """The group as servers know it. Only the groups called ``CID_RMQ_SYS_…`` have no namespace."""
    return wrap_topic(namespace, group)


def unwrap_group(namespace: str | None, group: str) -> str:
    """The group as users know it."""
    return unwrap_topic(namespace, group)


def wrap_queue(namespace: str | None, queue: MessageQueue) -> MessageQueue:
    """The queue with its topic as servers know it. Raises InvalidArgument for what is no queue."""
    check_is_queue(queue)
    topic = wrap_topic(namespace, queue.topic)
    return queue if topic == queue.topic else queue_of(topic, queue)


def unwrap_queue(namespace: str | None, queue: MessageQueue) -> MessageQueue:
    """The queue with its topic as users know it."""
    topic = unwrap_topic(namespace, queue.topic)
    return queue if topic == queue.topic else queue_of(topic, queue)


def queue_of(topic: str, queue: MessageQueue) -> MessageQueue:
    """The same place, of another topic."""
    return MessageQueue(topic, queue.broker_name, queue.queue_id)


def retry_topic(group: str) -> str:
    """Where messages of a group wait to be delivered again; ``group`` as servers know it."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Where messages end that were retried in vain; ``group`` as servers know it."""
    return DLQ_PREFIX + group


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def is_dead_letter_topic(topic: str) -> bool:
    return topic.startswith(DLQ_PREFIX)


def _is_system(name: str) -> bool:
    return is_system_topic(name) or name.startswith(SYSTEM_GROUP_PREFIX)


def _split(topic: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if topic.startswith(prefix):
            return prefix, topic[len(prefix) :]
    return "", topic

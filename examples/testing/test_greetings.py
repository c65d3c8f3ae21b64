from cometmq import Client


def test_what_is_sent_can_be_consumed(
    cometmq_client: Client, cometmq_topic: str, cometmq_group: str
) -> None:
    cometmq_client.producer().send(cometmq_topic, "hello")

    consumer = cometmq_client.consumer(cometmq_group, codec=str, start="first")
    consumer.subscribe(cometmq_topic)
    message = next(iter(consumer))

    assert message.value == "hello"

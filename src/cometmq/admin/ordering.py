"""How many queues ordered topics have on each broker, as name servers keep it for clients.

A value is ``broker-a:4;broker-b:4``. Each time brokers register they take a topic that has one for
ordered, whatever it says: so the order of a topic ends only when name servers have none.
"""

from collections.abc import Collection, Mapping

from cometmq.admin.name_servers import ORDER_NAMESPACE, NameServers


async def begin_order(name_servers: NameServers, topic: str, queues: Mapping[str, int]) -> None:
    """Write down the queues by broker of an ordered topic; other brokers are left as they are."""
    counts = _counts(await name_servers.order_config(topic))
    counts |= {name: str(count) for name, count in queues.items()}
    await _write(name_servers, topic, counts)


async def end_order(name_servers: NameServers, topic: str, brokers: Collection[str] | None) -> None:
    """Take some brokers out, and the value with the last of them; or all, also those long gone."""
    if brokers is None:
        await name_servers.delete_value(ORDER_NAMESPACE, topic)
        return
    before = _counts(await name_servers.order_config(topic))
    left = {name: count for name, count in before.items() if name not in brokers}
    if before and not left:
        await name_servers.delete_value(ORDER_NAMESPACE, topic)
    elif left != before:
        await _write(name_servers, topic, left)


def _counts(value: str | None) -> dict[str, str]:
    return dict(item.rsplit(":", 1) for item in (value or "").split(";") if ":" in item)


async def _write(name_servers: NameServers, topic: str, counts: Mapping[str, str]) -> None:
    value = ";".join(f"{name}:{count}" for name, count in sorted(counts.items()))
    await name_servers.set_value(ORDER_NAMESPACE, topic, value)

"""Asking a broker whether it understands a subscription (46), before anything depends on it."""

import random

from cometmq.client.instance import Instance
from cometmq.codec import bodies
from cometmq.codec.bodies.clients import CheckClientBody
from cometmq.codec.codes import RequestCode
from cometmq.model.group import TAG_EXPRESSION, SubscriptionData
from cometmq.model.route import MASTER_ID


async def check_subscription(
    instance: Instance, group: str, subscription: SubscriptionData
) -> None:
    """Have one broker of the topic judge a condition; tags need no judge.

    Raises Refused with the broker's reason; nothing happens when no broker is known.
    """
    if subscription.expression_type == TAG_EXPRESSION:
        return
    found = instance.routes.known(subscription.topic)
    brokers = [] if found is None else [b for b in found.route.broker_datas if b.broker_addrs]
    if not brokers:
        return
    addresses = random.choice(brokers).broker_addrs
    address = addresses.get(MASTER_ID) or random.choice(sorted(addresses.values()))
    body = CheckClientBody(instance.client_id, group, subscription)
    code = RequestCode.CHECK_CLIENT_CONFIG
    await instance.ask(instance.vip(address), code, None, bodies.encode(body))

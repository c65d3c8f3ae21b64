"""A member of a consumer group that does nothing but come and go."""

from cometmq.codec import bodies, command
from cometmq.codec.bodies.clients import ConsumerData, HeartbeatData
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.clients import UnregisterClient
from tests.interop import raw
from tests.interop.raw import RawConnection

CLIENT_ID = "comes-and-goes"


def join_and_leave(broker: str, group: str) -> None:
    """Let the broker know the group, so that it makes the group's retry topic."""
    data = HeartbeatData(CLIENT_ID, consumer_data_set=(ConsumerData(group),))
    header = UnregisterClient(CLIENT_ID, consumer_group=group)
    with raw.connect(broker) as connection:
        body = bodies.encode(data)
        _ask(connection, command.request(RequestCode.HEART_BEAT, body=body))
        _ask(connection, command.request(RequestCode.UNREGISTER_CLIENT, header))


def _ask(connection: RawConnection, question: Command) -> None:
    connection.send(command.encode(question))
    while True:
        (answer,), _ = command.decode_frames(connection.receive())
        # A notice that the group has a new member may come first.
        if answer.is_response:
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            return

"""A server in a process of its own, whose memory a test can look at.

``python -m tests.unit.remoting.hostile_server uvloop`` prints its port and ends with its standard
input. It tells everyone who asks how many connections it has, how many have ended, and how many
bytes of incomplete frames it holds.
"""

import asyncio
import sys

import uvloop

from cometmq.codec.command import Command
from cometmq.remoting.channel import Channel
from cometmq.remoting.routes import Answer, Routes
from cometmq.remoting.server import Server
from tests.unit.remoting.kit import ECHO, LOOPBACK


async def serve() -> None:
    ended: list[str] = []

    def tell(channel: Channel, command: Command) -> Answer:
        counts = len(server.channels), len(ended), server.partial_frames_bytes
        return Answer(body=b"%d %d %d" % counts)

    routes = Routes()
    routes.add(ECHO, tell)
    server = Server(routes, on_closed=lambda channel: ended.append(channel.peer))
    await server.start(LOOPBACK, 0)
    print(server.ports[0], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop()


if __name__ == "__main__":
    factory = uvloop.new_event_loop if sys.argv[1] == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve())

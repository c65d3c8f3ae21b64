"""Writes a topic as JSON lines, in the order of storing: ``python examples/export_topic.py TOPIC``.

The address is in NAMESRV_ADDR. No group is made, and nothing is changed.
"""

import json
import sys

from cometmq import Client, NoRoute


def main(topic: str) -> int:
    with Client() as mq:
        try:
            for message in mq.browse(topic):
                line = {
                    "id": message.message_id,
                    "stored_ms": message.stored_ms,
                    "queue": message.queue_id,
                    "offset": message.queue_offset,
                    "tag": message.tag,
                    "keys": message.keys,
                    "body": message.body.decode(errors="replace"),
                }
                print(json.dumps(line))
        except NoRoute as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))

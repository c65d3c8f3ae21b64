"""Commands over a connection: requests, answers and one-way calls, in both directions.

``connection`` knows the protocol and no sockets; ``channel`` puts it on an asyncio transport;
``server`` listens and ``client`` dials. Nothing here knows what a command means: a program gives a
table of handlers (``routes``).
"""

"""Values: frozen, comparable, without IO. Nothing here knows bytes, files or sockets.

A value that RocketMQ also sends as JSON carries its Java field names (``rename``), so that the
codecs need no second copy of it.
"""

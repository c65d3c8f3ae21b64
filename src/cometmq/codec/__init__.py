"""Bytes to values and back: pure functions over RocketMQ's wire and store formats.

No module here opens a file or a socket, reads a clock or keeps state between calls. The functions
that touch every message have compiled twins in ``cometmq._fast``; ``codec.core`` chooses.
"""

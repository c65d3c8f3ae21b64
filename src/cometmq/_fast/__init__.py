"""Compiled twins of the hot functions in ``cometmq.codec``; optional, chosen by ``codec.core``.

The compiled code computes on bytes. It knows no topics, handlers, sockets or files.
"""

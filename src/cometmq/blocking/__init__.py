"""The client for programs without asyncio: the same names, where each call waits for its result.

Nothing is decided here. A client has one event loop in a thread of its own, on which the classes
of ``client`` run; a call hands them its arguments and waits. Public as ``cometmq``.
"""

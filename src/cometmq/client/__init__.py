"""Producers and consumers, on asyncio; public as ``cometmq.aio`` and, blocking, as ``cometmq``.

What decides without doing IO is in ``core``; the modules beside it talk to name servers and brokers
through ``remoting``. Nothing here knows a store, a broker's tables or the admin library.
"""

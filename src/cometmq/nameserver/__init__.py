"""The name server: who the brokers are, where each topic is, and a few settings shared by all.

``route_table`` and what it is made of (``brokers``, ``topics``, ``route_cache``, ``registration``)
compute: no sockets, no files, no clock, no logging; time is an argument and what is worth logging
comes back in results. ``kv_config`` keeps settings by namespace, ``config`` says how a name server
is set up. What a request means on the wire belongs to the handlers above them.
"""

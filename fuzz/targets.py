"""All targets by name; each takes any bytes and returns nothing.

A target raises nothing, whatever the bytes are, as long as the decoders keep their promises: only
RemoteProtocolError comes out of them, the compiled core and the plain one agree, what was decoded
can be encoded and decoded again.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from fuzz import documents, store, wire

Target = Callable[[bytes], None]

TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        "frames": wire.frames,
        "header": wire.header,
        "signature": wire.signed,
        "batch": wire.batches,
        "compression": wire.compressed,
        "record": store.records,
        "queue-entry": store.queue_entries,
        "queue-extension": store.queue_extensions,
        "index": store.indexes,
        "page": store.pages,
        "properties": store.property_strings,
        "id": store.ids,
        "json": documents.json_texts,
        "body": documents.json_bodies,
        "config": documents.config_files,
        "registration": documents.registrations,
        "java-properties": documents.properties_files,
    }
)

"""Every limit with a name. A limit without a test that hits it is a wish."""

FRAME_BYTES_MAX = 16 * 1024 * 1024
"""A whole frame with its length prefix; Java peers drop the connection above it."""

HEADER_BYTES_MAX = 0xFFFFFF
"""Header length is a 24-bit field."""

TOPIC_BYTES_MAX = 127
"""Topic length is a signed byte in V1 records."""

TOPIC_RETRY_BYTES_MAX = 255
"""Retry topics hold a group's name and may be longer; their records are V2. Also the longest name
of a folder."""

TOPIC_V2_BYTES_MAX = 32_767
"""Topic length is a signed short in V2 records."""

GROUP_CHARACTERS_MAX = 120
"""So that the names of a group's retry and dead-letter topics fit into a record.

Apache's 4.9 took 255 and then lost the retries; such a group in a file from there stays."""

PROPERTIES_BYTES_MAX = 32_767
"""Property strings are stored with a signed 16-bit length."""

BODY_BYTES_MAX = 4 * 1024 * 1024
"""Default ``maxMessageSize`` of brokers and clients, counted on the body as sent."""

RECORD_OVERHEAD_BYTES_MAX = 64 * 1024
"""What a record may have above the body limit: fixed fields, topic and properties."""

QUEUE_GAP_MAX = 1_000_000
"""Entries that may be missing in a queue beyond what the log can have held; more is damage."""

JSON_DEPTH_MAX = 64
"""Nesting accepted by the fastjson reader; real bodies stay below 10."""

ZSTD_WINDOW_BYTES_MAX = 8 * 1024 * 1024
"""Window a Zstandard frame may ask for, unless the body limit is higher (RFC 8878)."""

PENDING_REQUESTS_MAX = 65_536
"""Requests of ours on one connection that may wait for an answer."""

HANDLERS_IN_FLIGHT_MAX = 4_096
"""Requests of one peer whose handlers have not finished; more are answered with SYSTEM_BUSY."""

PARTIAL_FRAMES_BYTES_MAX = 48 * 1024 * 1024
"""What all connections of a server may hold of frames that are not complete yet."""

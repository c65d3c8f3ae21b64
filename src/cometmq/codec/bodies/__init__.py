"""The JSON bodies of requests and answers, by family, and which code has which.

Bodies that are records, batches or properties text are not here; neither is the meaning of any
body. A member that is None is absent on the wire: that is how the differences between releases
are kept. Lists that are sets in Java are tuples here and keep their order.
"""

from cometmq.codec.bodies.registry import (
    FORMS,
    REQUEST_BODIES,
    RESPONSE_BODIES,
    Form,
    decode,
    encode,
)

__all__ = ["FORMS", "REQUEST_BODIES", "RESPONSE_BODIES", "Form", "decode", "encode"]

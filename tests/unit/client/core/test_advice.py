"""What to do about refusals."""

from cometmq.client.core.advice import advice
from cometmq.client.core.send_budget import RETRIED_CODES
from cometmq.codec.codes import ResponseCode

_NEVER_ANSWERED = {ResponseCode.NO_BUYER_ID, ResponseCode.NOT_IN_CURRENT_UNIT}
_ANYTHING = {ResponseCode.SYSTEM_ERROR}


def test_whatever_a_send_meets_in_the_end_has_a_next_step() -> None:
    for code in RETRIED_CODES - _NEVER_ANSWERED - _ANYTHING:
        assert advice(code), code


def test_what_nobody_knows_has_none() -> None:
    assert advice(12_345) == ""

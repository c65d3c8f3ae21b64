"""What a broker makes of the properties of a send, in both cores."""

import random

import pytest

from cometmq.codec import core, properties, sent_properties
from cometmq.codec.properties import Property
from cometmq.codec.sent_properties import Asks

ADDITION = b"CLUSTER\x01c\x02"
ASKING = {
    Property.DELAY: Asks.DELAY,
    Property.TIMER_DELAY_SEC: Asks.TIMER,
    Property.TIMER_DELAY_MS: Asks.TIMER,
    Property.TIMER_DELIVER_MS: Asks.TIMER,
    Property.TRAN_MSG: Asks.TRANSACTION,
    Property.MSG_REGION: Asks.REWRITE,
    Property.TRACE_ON: Asks.REWRITE,
    Property.CLUSTER: Asks.REWRITE,
    Property.POP_CK: Asks.REWRITE,
    "__RMQ.TRANSIENT.anything": Asks.REWRITE,
}


def test_a_usual_message_asks_for_nothing() -> None:
    text = "UNIQ_KEY\x01A\x02TAGS\x01red\x02WAIT\x01true\x02"

    asks, unique_key, stored = core.read_sent_properties(text, ADDITION)

    assert (asks, unique_key) == (0, "A")
    assert stored == text.encode() + ADDITION


def test_a_missing_separator_is_put_in() -> None:
    _, _, stored = core.read_sent_properties("TAGS\x01red", ADDITION)

    assert stored == b"TAGS\x01red\x02" + ADDITION


def test_no_properties_are_fine() -> None:
    assert tuple(core.read_sent_properties("", ADDITION)) == (0, None, ADDITION)


@pytest.mark.parametrize(("name", "asked"), ASKING.items())
def test_names_with_a_meaning_are_noticed(name: str, asked: Asks) -> None:
    asks, _, _ = core.read_sent_properties(f"a\x01b\x02{name}\x01x\x02", ADDITION)

    assert asks == asked


@pytest.mark.parametrize("name", ASKING)
def test_names_that_only_contain_one_are_not(name: str) -> None:
    text = f"X{name}\x01x\x02{name}X\x01\x02note\x01{name}\x02"

    asks, _, _ = core.read_sent_properties(text.replace(f"{name}X", f"x{name}"), ADDITION)

    assert asks == 0


@pytest.mark.parametrize(
    ("value", "asked"), [("true", 0), ("TRUE", 0), ("false", 8), ("1", 8), ("tru", 8)]
)
def test_only_true_is_waited_for(value: str, asked: int) -> None:
    assert core.read_sent_properties(f"WAIT\x01{value}\x02", ADDITION)[0] == asked


def test_of_two_unique_keys_the_last_counts() -> None:
    text = "UNIQ_KEY\x01A\x02UNIQ_KEY\x01ключ\x02"

    assert core.read_sent_properties(text, ADDITION)[1] == "ключ"


def test_text_without_utf8_form_is_told() -> None:
    assert core.read_sent_properties("a\x01\ud800\x02", ADDITION)[0] & Asks.NOT_TEXT


@pytest.mark.parametrize("seed", range(200))
def test_both_cores_agree_and_lose_nothing(seed: int) -> None:
    chance = random.Random(seed)
    names = [*ASKING, "UNIQ_KEY", "WAIT", "KEYS", "ü", "", "a"]
    values = ["true", "False", "1", "", "x\x01y", "ключ"]
    ends = ["\x02", "\x02", "\x02", ""]
    text = "".join(
        chance.choice(names) + chance.choice(["\x01", "\x01", ""]) + chance.choice(values)
        + chance.choice(ends)
        for _ in range(chance.randrange(6))
    )  # fmt: skip

    found = core.read_sent_properties(text, ADDITION)

    assert tuple(found) == tuple(sent_properties.read(text, ADDITION)), f"seed {seed}"
    assert properties.decode(found[2]) == {**properties.decode(text), "CLUSTER": "c"}

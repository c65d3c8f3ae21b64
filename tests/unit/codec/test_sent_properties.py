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


def random_text(chance: random.Random, names: list[str]) -> str:
    values = ["true", "False", "1", "", "x\x01y", "ключ"]
    ends = ["\x02", "\x02", "\x02", ""]
    return "".join(
        chance.choice(names) + chance.choice(["\x01", "\x01", ""]) + chance.choice(values)
        + chance.choice(ends)
        for _ in range(chance.randrange(6))
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(200))
def test_both_cores_agree_and_lose_nothing(seed: int) -> None:
    text = random_text(random.Random(seed), [*ASKING, "UNIQ_KEY", "WAIT", "KEYS", "ü", "", "a"])

    found = core.read_sent_properties(text, ADDITION)

    assert tuple(found) == tuple(sent_properties.read(text, ADDITION)), f"seed {seed}"
    assert properties.decode(found[2]) == {**properties.decode(text), "CLUSTER": "c"}


@pytest.mark.parametrize("seed", range(20))
def test_what_is_soon_told_is_what_is_read(seed: int) -> None:
    chance = random.Random(seed)
    names = ["UNIQ_KEY", "UNIQ_KEY", "XUNIQ_KEY", "WAIT", "KEYS", "TAGS", "a", "", "DELAY"]
    told = 0
    for _ in range(200):
        text = random_text(chance, names)

        found = sent_properties.usual(text)

        asks, unique_key, data = sent_properties.read(text, b"")
        if found is not None:
            told += 1
            keys, tags = (properties.get(data, name) or "" for name in (b"KEYS", b"TAGS"))
            assert not asks & ~Asks.NO_WAIT, text
            assert found == (unique_key, (keys.encode(), tags.encode())), text
    assert told > 5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "TAGS\x01red\x02",
        "UNIQ_KEY\x01\x02",
        "UNIQ_KEY\x01A\x02DELAY\x013\x02",
        "UNIQ_KEY\x01A\x02UNIQ_KEY\x01B\x02",
        "UNIQ_KEY\x01A\x02a\x01\ud800\x02",
    ],
    ids=ascii,
)
def test_it_is_not_soon_told_what_asks_for_more(text: str) -> None:
    assert sent_properties.usual(text) is None


def test_only_so_much_is_kept_of_what_was_found_before() -> None:
    for number in range(3000):
        sent_properties.usual(f"UNIQ_KEY\x01A\x02KEYS\x01{number}\x02")
    sent_properties.usual(f"UNIQ_KEY\x01A\x02KEYS\x01{'k' * 5000}\x02")

    assert len(sent_properties._known) <= 1024
    assert max(map(len, sent_properties._known)) <= 128

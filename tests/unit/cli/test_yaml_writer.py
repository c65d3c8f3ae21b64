import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cometmq.cli.yaml_writer import Plain, to_yaml

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)
plain_data = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


def test_a_document_reads_like_one_written_by_hand() -> None:
    topic: Plain = {"name": "orders", "queues": [{"id": 0, "perm": "rw"}, {"id": 1}], "tags": []}

    assert to_yaml({"topics": [topic], "next": None, "is_done": True, "share": 0.5}) == (
        "topics:\n"
        "  - name: orders\n"
        "    queues:\n"
        "      - id: 0\n"
        "        perm: rw\n"
        "      - id: 1\n"
        "    tags: []\n"
        "next: null\n"
        "is_done: true\n"
        "share: 0.5\n"
    )


@pytest.mark.parametrize("text", ["orders", "a b", "org/x-1.2_y", "True-ish", "V5_5_0"])
def test_an_innocent_text_stays_bare(text: str) -> None:
    assert to_yaml(text) == f"{text}\n"


@pytest.mark.parametrize(
    "text",
    [
        *("", " x", "x ", "no", "Off", "NULL", "y", "~"),
        *("12", "1e3", "0x1F", ".5", "2026-01-01", "1:30"),
        *("a: b", "a #b", "- a", "? a", "&a", "*a", "!a", "|", ">", "%a", "@a", "`a", "[a", "{a"),
    ],
)
def test_a_text_that_could_be_misread_is_quoted(text: str) -> None:
    assert to_yaml(text) == f'"{text}"\n'


def test_control_characters_and_quotes_are_escaped() -> None:
    assert to_yaml('a"\\\n\t\x1b\x85\u2028\U000e0001é') == (
        '"a\\"\\\\\\n\\t\\x1b\\x85\\u2028\\U000e0001é"\n'
    )


def test_empty_lists_and_mappings_are_written_inline() -> None:
    assert to_yaml([]) == "[]\n"
    assert to_yaml({}) == "{}\n"
    assert to_yaml([[], {}, [[1]]]) == "- []\n- {}\n- - - 1\n"


@pytest.mark.slow
@given(plain_data)
def test_another_reader_gets_back_what_was_written(value: Plain) -> None:
    assert yaml.safe_load(to_yaml(value)) == value

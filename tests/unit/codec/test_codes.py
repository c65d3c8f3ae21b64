"""Numbers that name things on the wire."""

import pytest

from cometmq.codec import codes
from cometmq.codec.codes import (
    LanguageCode,
    RequestCode,
    ResponseCode,
    language_from,
    version_name,
    version_ordinal,
)
from cometmq.errors import LocalProtocolError

KNOWN_ORDINALS = {
    "V3_0_11": 37,
    "V3_4_9": 121,
    "V4_1_0_SNAPSHOT": 232,
    "V4_1_0": 233,
    "V4_2_0": 253,
    "V4_3_0": 273,
    "V4_5_2": 317,
    "V4_6_0": 333,
    "V4_7_0": 353,
    "V4_8_0": 373,
    "V4_9_0": 393,
    "V4_9_3": 399,
    "V4_9_4": 401,
    "V4_9_7": 407,
    "V4_9_8": 409,
    "V5_0_0": 413,
    "V5_1_0": 433,
    "V5_1_4": 441,
    "V5_2_0": 453,
    "V5_3_0": 473,
    "V5_3_1": 475,
    "V5_3_2": 477,
    "V5_3_3": 479,
    "V5_4_0": 493,
    "V5_5_0": 513,
}


@pytest.mark.parametrize(("name", "ordinal"), KNOWN_ORDINALS.items())
def test_a_release_has_its_ordinal_and_back(name: str, ordinal: int) -> None:
    assert version_ordinal(name) == ordinal
    assert version_name(ordinal) == name


def test_a_release_may_be_given_with_dots() -> None:
    assert version_ordinal("5.5.0") == codes.VERSION
    assert version_ordinal("3.1.8_SNAPSHOT") == codes.V3_1_8_SNAPSHOT


def test_constants_are_the_ordinals_of_their_names() -> None:
    named = {name: value for name, value in vars(codes).items() if name.startswith("V")}
    named.pop("VERSION")

    assert len(named) == 10
    assert {name: version_ordinal(name) for name in named} == named


def test_every_ordinal_has_one_name() -> None:
    names = [version_name(ordinal) for ordinal in range(612)]

    assert len(set(names)) == 612
    assert [version_ordinal(name) for name in names] == list(range(612))
    assert names[0] == "V3_0_0_SNAPSHOT"
    assert names[-1] == "V5_9_9"


def test_ordinals_outside_the_list_have_a_name_too() -> None:
    assert version_name(612) == "HIGHER_VERSION"
    assert version_name(32_767) == "HIGHER_VERSION"
    assert version_name(-1) == "UNKNOWN"


@pytest.mark.parametrize("release", ["", "5", "6.0.0", "3.3.0", "V5.5.0", "latest"])
def test_an_unknown_release_is_refused(release: str) -> None:
    with pytest.raises(LocalProtocolError, match="no RocketMQ release"):
        version_ordinal(release)


@pytest.mark.parametrize(
    ("value", "language"),
    [
        ("JAVA", LanguageCode.JAVA),
        ("java", LanguageCode.JAVA),
        (3, LanguageCode.PYTHON),
        ("3", LanguageCode.PYTHON),
        (9, LanguageCode.GO),
        ("NODE_JS", LanguageCode.NODE_JS),
        ("ZIG", LanguageCode.OTHER),
        ("", LanguageCode.OTHER),
        (14, LanguageCode.OTHER),
        (-1, LanguageCode.OTHER),
    ],
)
def test_a_language_is_found_by_name_or_number(value: str | int, language: LanguageCode) -> None:
    assert language_from(value) == language


def test_codes_are_plain_numbers_with_javas_names() -> None:
    assert RequestCode(310).name == "SEND_MESSAGE_V2"
    assert RequestCode["POP_MESSAGE"] == 200_050
    assert ResponseCode(17).name == "TOPIC_NOT_EXIST"


def test_no_request_has_two_names() -> None:
    assert [code.name for code in RequestCode] == list(RequestCode.__members__)


def test_old_names_of_reused_answers_are_aliases() -> None:
    aliases = {name for name, code in ResponseCode.__members__.items() if code.name != name}

    assert aliases == {
        "UPDATE_AND_CREATE_ACL_CONFIG_FAILED",
        "DELETE_ACL_CONFIG_FAILED",
        "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED",
    }
    assert ResponseCode(209).name == "POLLING_FULL"

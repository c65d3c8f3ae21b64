"""Values become bodies and come back, or an error says which type and what to do."""

import sys
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

import msgspec
import pytest

from cometmq.client.core.value_codecs import (
    BYTES,
    JSON,
    TEXT,
    ValueCodec,
    codec_for,
    decode_error,
    encode_value,
    msgspec_codec,
    pydantic_codec,
)
from cometmq.errors import CodecError, EncodeError, MissingDependency

T = TypeVar("T")


class Order(msgspec.Struct):
    number: int
    note: str = ""


class Page(msgspec.Struct, Generic[T]):
    items: list[T]


class Measured(msgspec.Struct):
    number: float
    more: dict[str, list[float]] | None = None


@dataclass
class Parcel:
    weight_g: int


class Address(TypedDict):
    city: str


class Point(NamedTuple):
    x: int
    y: int


class Opaque:
    """Nothing that JSON has a form for."""


class Reversed:
    """A codec of a user."""

    def encode(self, value: bytes, /) -> bytes:
        return value[::-1]

    def decode(self, body: bytes, /) -> bytes:
        return body[::-1]


class Model:
    """What matters of a pydantic model here: its mark."""

    __pydantic_validator__ = object()

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and other.number == self.number


class RefusedModel:
    __pydantic_validator__ = object()


class UserError(Exception):
    """As pydantic's own, for types without a schema."""


class FakeAdapter:
    """Reads and writes one model, or a list of them, as pydantic's TypeAdapter does."""

    def __init__(self, kind: Any) -> None:
        if kind is RefusedModel:
            raise UserError("no schema")
        self._is_list = kind is not Model

    def validate_json(self, body: bytes) -> Any:
        found = msgspec.json.decode(body)
        return [Model(**item) for item in found] if self._is_list else Model(**found)

    def dump_json(self, value: Any) -> bytes:
        return msgspec.json.encode([vars(one) for one in value] if self._is_list else vars(value))


@pytest.fixture
def pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("pydantic")
    vars(module).update(
        TypeAdapter=FakeAdapter, errors=SimpleNamespace(PydanticUserError=UserError)
    )
    monkeypatch.setitem(sys.modules, "pydantic", module)


@pytest.mark.parametrize(
    ("kind", "value", "body"),
    [
        (bytes, b"\x00\xff", b"\x00\xff"),
        (str, "é", b"\xc3\xa9"),
        (dict, {"a": 1}, b'{"a":1}'),
        (list, [1, None], b"[1,null]"),
        (Any, {"a": [1.5, True]}, b'{"a":[1.5,true]}'),
        (object, "text", b'"text"'),
        (int, 7, b"7"),
        (dict[str, Order], {"x": Order(1)}, b'{"x":{"number":1,"note":""}}'),
        (Order, Order(7, "x"), b'{"number":7,"note":"x"}'),
        (Page[Order], Page([Order(1)]), b'{"items":[{"number":1,"note":""}]}'),
        (Parcel, Parcel(250), b'{"weight_g":250}'),
        (Address, {"city": "Ulm"}, b'{"city":"Ulm"}'),
        (Point, Point(1, 2), b"[1,2]"),
        (Order | None, None, b"null"),
        (Reversed(), b"abc", b"cba"),
    ],
    ids=str,
)
def test_a_value_of_a_declared_type_survives_the_way(kind: Any, value: object, body: bytes) -> None:
    codec = codec_for(kind)

    assert encode_value(value, codec) == body
    assert codec.decode(body) == value


def test_the_makers_are_found_by_type() -> None:
    own = Reversed()

    assert codec_for(bytes) is BYTES
    assert codec_for(str) is TEXT
    assert codec_for(Any) is JSON
    assert codec_for(own) is own


def test_members_that_the_type_does_not_have_are_ignored() -> None:
    """A sender may know a newer form of the type than this program."""
    assert msgspec_codec(Order).decode(b'{"number":1,"colour":"red"}') == Order(1)


@pytest.mark.parametrize("kind", [Opaque, 7, "Order", Reversed, type[Order]], ids=str)
def test_what_has_no_codec_is_refused_with_its_name(kind: Any) -> None:
    with pytest.raises(CodecError) as caught:
        codec_for(kind)

    assert caught.value.type_name in str(caught.value)
    assert caught.value.next_step.startswith("give ")


@pytest.mark.parametrize(
    ("value", "body"),
    [
        (b"as it is", b"as it is"),
        (bytearray(b"copied"), b"copied"),
        (memoryview(b"viewed")[1:], b"iewed"),
        ("é", b"\xc3\xa9"),
        ({"a": 1}, b'{"a":1}'),
        ([1], b"[1]"),
        ((1, 2), b"[1,2]"),
        (7, b"7"),
        (1.5, b"1.5"),
        (True, b"true"),
        (Order(1), b'{"number":1,"note":""}'),
        (Parcel(2), b'{"weight_g":2}'),
    ],
    ids=str,
)
def test_a_value_without_a_declared_type_is_sent_as_what_it_is(value: object, body: bytes) -> None:
    assert encode_value(value) == body


@pytest.mark.parametrize("value", [None, Opaque(), {1, 2}, timedelta(1), Order], ids=str)
def test_a_value_that_says_nothing_about_its_form_is_refused(value: object) -> None:
    with pytest.raises(EncodeError) as caught:
        encode_value(value)

    assert caught.value.type_name == type(value).__qualname__
    assert "give a codec" in caught.value.next_step


@pytest.mark.parametrize(
    ("value", "codec"),
    [
        ("text", BYTES),
        (b"bytes", TEXT),
        ("half \ud800", TEXT),
        ({"inside": Opaque()}, JSON),
        ("text", msgspec_codec(Order)),
        ({"weight_g": 1}, msgspec_codec(Parcel)),
        ([1], msgspec_codec(Page[int])),
        (7, Reversed()),
    ],
    ids=str,
)
def test_a_value_that_its_codec_cannot_take_is_refused(value: object, codec: Any) -> None:
    with pytest.raises(EncodeError) as caught:
        encode_value(value, codec)

    assert caught.value.type_name == type(value).__qualname__
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("codec", [None, JSON, codec_for(Measured)])
def test_a_number_that_json_cannot_say_is_refused(number: float, codec: Any) -> None:
    """It would arrive as null."""
    for value in (Measured(number), Measured(1.5, {"deep": [10**30, number]})):
        with pytest.raises(EncodeError, match="nan or an infinity, for which JSON has no form"):
            encode_value(value, codec)


@pytest.mark.parametrize(
    "value",
    [
        {"note": None, "number": 1.5},
        {"note": "null", "large": 10**30},
        {1: None, "bytes": b"\xcb\x7f\xf8"},
        [None, float("1e308")],
    ],
)
def test_null_that_was_meant_is_no_reason_to_refuse(value: Any) -> None:
    assert b"null" in encode_value(value)


def test_a_decode_error_names_message_type_and_reason() -> None:
    codec: ValueCodec[Order] = msgspec_codec(Order)

    with pytest.raises(msgspec.ValidationError) as caught:
        codec.decode(b'{"number":"x"}')
    error = decode_error("7F00", codec, caught.value)
    of_user = decode_error("7F00", Reversed(), ValueError())

    assert (error.message_id, error.type_name) == ("7F00", "Order")
    assert "Expected `int`, got `str`" in error.reason
    assert (of_user.type_name, of_user.reason) == ("Reversed", "ValueError")


@pytest.mark.usefixtures("pydantic")
def test_pydantic_reads_and_writes_its_own_models() -> None:
    one, many = codec_for(Model), codec_for(list[Model])

    assert one.decode(b'{"number":1}') == Model(1)
    assert encode_value(Model(1), one) == encode_value(Model(1)) == b'{"number":1}'
    assert many.decode(b'[{"number":1}]') == [Model(1)]
    assert encode_value([Model(1)], many) == b'[{"number":1}]'
    with pytest.raises(EncodeError, match="codec is for Model"):
        encode_value({"number": 1}, one)


@pytest.mark.usefixtures("pydantic")
def test_a_type_that_pydantic_refuses_has_no_codec() -> None:
    with pytest.raises(CodecError, match="RefusedModel: no schema"):
        codec_for(RefusedModel)


def test_without_pydantic_its_codec_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)

    with pytest.raises(MissingDependency, match=r"pip install pydantic$"):
        pydantic_codec(Model)

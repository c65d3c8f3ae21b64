"""fastjson's dialect. Expected bytes marked as Java's were written by the library itself."""

import enum
from typing import Any

import msgspec
import pytest

from cometmq.codec import fastjson
from cometmq.codec.fastjson import ObjectKey, PrettyStyle
from cometmq.errors import LocalProtocolError, RemoteProtocolError
from cometmq.model.group import ConsumeType
from cometmq.model.java_types import Int32, Int64
from cometmq.model.limits import JSON_DEPTH_MAX
from cometmq.model.offsets import MessageQueue


class Queues(msgspec.Struct, rename="camel"):
    offset_table: dict[MessageQueue, Int64] = {}


class Loose(msgspec.Struct, rename="camel"):
    name: str = ""
    number: Int32 = 0
    big: Int64 = 0
    rate: float = 0.0
    is_on: bool = False
    kind: ConsumeType = ConsumeType.CONSUME_ACTIVELY
    tags: list[str] = []
    codes: list[int] = []
    addresses: dict[int, str] = {}
    maybe: str | None = None


class Layout(msgspec.Struct):
    """Every kind of member whose layout the two libraries treat differently."""

    array: tuple[int, ...] = (1, 2)
    bare: dict[int, list[str]] = msgspec.field(default_factory=lambda: {1: ["p"], 2: []})
    empty: dict[str, str] = {}
    none: str | None = None
    numbers: list[int] = msgspec.field(default_factory=lambda: [1, 2])
    offs: dict[MessageQueue, int] = msgspec.field(
        default_factory=lambda: {MessageQueue("t", "b", 0): 5, MessageQueue("t", "b", 1): 6}
    )
    texts: list[str] = msgspec.field(default_factory=lambda: ["a", "b"])


class TestReading:
    def test_standard_json_is_read_as_it_is(self) -> None:
        value = fastjson.loads(b' {"a":[1,-2,3.5,true,false,null,"x\\u4e2d\\n"],"0":{}} \n')

        assert value == {"a": [1, -2, 3.5, True, False, None, "x中\n"], "0": {}}

    def test_bare_integer_keys_become_integers_and_quoted_ones_stay_text(self) -> None:
        assert fastjson.loads('{0:"a",-1:"b","2":"c"}') == {0: "a", -1: "b", "2": "c"}

    def test_names_may_be_bare_or_in_single_quotes(self) -> None:
        assert fastjson.loads("{a_$1:'x\"y','b':\"it's\"}") == {"a_$1": 'x"y', "b": "it's"}

    def test_an_object_as_key_is_hashable_and_converts_to_a_struct(self) -> None:
        data = '{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:17}}'

        value = fastjson.loads(data)

        key = ObjectKey(brokerName="b", queueId=0, topic="t")
        assert value == {"offsetTable": {key: 17}}
        assert msgspec.convert(value, Queues) == Queues({MessageQueue("t", "b", 0): 17})

    def test_a_newline_after_the_document_is_no_matter(self) -> None:
        assert fastjson.loads("{a:1}\n") == {"a": 1}

    def test_integers_of_64_bits_keep_every_digit(self) -> None:
        assert fastjson.loads("{0:1794779975546748198}") == {0: 1794779975546748198}
        assert fastjson.decode('{"big":"1794779975546748198"}', Loose).big == 1794779975546748198

    def test_escaped_surrogate_pairs_are_joined_and_halves_become_question_marks(self) -> None:
        assert fastjson.loads('{a:"\\ud83d\\ude00 \\ud83d \ufffd"}') == {"a": "😀 ? \ufffd"}

    def test_the_last_of_repeated_keys_counts(self) -> None:
        assert fastjson.loads("{a:1,a:2}") == {"a": 2}
        assert fastjson.loads('{"a":{"$ref":"$.b"},"a":1,"b":{}}') == {"a": 1, "b": {}}

    @pytest.mark.parametrize(
        ("data", "fact"),
        [
            ("", "position 0: expected a value"),
            ("{a:1", "position 4: expected ',' or '}'"),
            ("[1 2]", "position 3: expected ',' or ']'"),
            ("{a 1}", "position 3: expected ':'"),
            ("{:1}", "position 1: expected a key"),
            ("{a:'x}", "string without end"),
            ("{a:'\\q'}", "unknown escape"),
            ("{a:'\\u12'}", "four hexadecimal digits"),
            ("{a:nul}", "position 3: expected a value"),
            ("{a:-}", "expected a number"),
            ("{a:1e999}", "number out of range"),
            ("{a:" + "9" * 41 + "}", "number out of range"),
            ("{a:1} x", "position 6: more text after the document"),
            ("{{'a':[]}:1}", "a key holds an object or a list"),
            (b"{a:'\xff'}", "not UTF-8: byte 4"),
        ],
    )
    def test_malformed_text_is_refused_with_its_position(
        self, data: bytes | str, fact: str
    ) -> None:
        with pytest.raises(RemoteProtocolError) as caught:
            fastjson.loads(data)

        assert fact in caught.value.fact

    def test_an_error_quotes_only_a_little_of_the_document(self) -> None:
        with pytest.raises(RemoteProtocolError) as caught:
            fastjson.loads("{" + "a" * 10_000)

        assert len(caught.value.fact) < 200

    @pytest.mark.parametrize("quote", ['"', "'"])
    def test_nesting_is_limited_in_both_parsers(self, quote: str) -> None:
        def nested(depth: int) -> str:
            return "[" * depth + quote + "x" + quote + "]" * depth

        assert fastjson.loads(nested(JSON_DEPTH_MAX)) != []
        with pytest.raises(RemoteProtocolError, match="nested"):
            fastjson.loads(nested(JSON_DEPTH_MAX + 1))
        with pytest.raises(RemoteProtocolError, match="nested"):
            fastjson.loads(nested(100_000))

    def test_many_brackets_side_by_side_are_not_depth(self) -> None:
        assert fastjson.loads("[" + ",".join(["{}"] * 1000) + "]") == [{}] * 1000


class TestReferences:
    def test_a_path_leads_to_the_object_written_first(self) -> None:
        data = r"""{"a":{"%RETRY%g.x-y":{"q":1}},"l":[[{0:{"q":2}}]],
            "m":{"$ref":"$.a.\\%RETRY\\%g\\.x\\-y"},"n":{"$ref":"$.l[0][0].0"},
            "o":{"$ref":"$['l'][0]"},"p":{"$ref":"$[\"a\"]"}}"""

        value = fastjson.loads(data)

        assert value["m"] == {"q": 1}
        assert value["n"] == {"q": 2}
        assert value["o"] is value["l"][0]
        assert value["p"] is value["a"]

    def test_relative_references_follow_the_writer(self) -> None:
        """fastjson writes ``@`` for the holder itself and ``..`` for what is around it."""
        value = fastjson.loads('{"a":{"b":{"$ref":"@"},"c":{"$ref":".."},"d":{"$ref":"$"}}}')

        assert value["a"]["b"] is value["a"]
        assert value["a"]["c"] is value
        assert value["a"]["d"] is value

    def test_a_key_may_be_a_reference(self) -> None:
        data = """{"l":[{"brokerName":"b","queueId":1,"topic":"t"}],
            "offsetTable":{{"$ref":"$.l[0]"}:5,{"brokerName":"b","queueId":2,"topic":"t"}:6}}"""

        decoded = fastjson.decode(data, Queues)

        assert decoded.offset_table == {
            MessageQueue("t", "b", 1): 5,
            MessageQueue("t", "b", 2): 6,
        }

    @pytest.mark.parametrize(
        "path", ["$.b", "$.a[0]", "$.a.", "x", "", "$.a.x.y", "$.self", "$.l[9]", "$.l.x", "$.s[0]"]
    )
    def test_a_reference_to_nothing_is_refused(self, path: str) -> None:
        with pytest.raises(RemoteProtocolError, match="leads nowhere"):
            fastjson.loads(f'{{"a":{{"x":1}},"l":[1],"s":"text","self":{{"$ref":"{path}"}}}}')

    @pytest.mark.parametrize("target", ["$.l", "$.deep"])
    def test_a_key_cannot_refer_to_what_is_no_key(self, target: str) -> None:
        with pytest.raises(RemoteProtocolError, match="leads nowhere"):
            fastjson.loads(f'{{"l":[],"deep":{{"x":[]}},"t":{{{{"$ref":"{target}"}}:1}}}}')

    def test_a_list_cannot_refer_around_the_document(self) -> None:
        with pytest.raises(RemoteProtocolError, match="leads nowhere"):
            fastjson.loads('[{"$ref":".."}]')

    def test_a_document_that_contains_itself_has_no_type(self) -> None:
        data = '{"tags":[{"$ref":"$"}]}'

        assert fastjson.loads(data)["tags"][0]["tags"]
        with pytest.raises(RemoteProtocolError, match="from inside"):
            fastjson.decode(data, Loose)

    def test_references_cannot_blow_a_document_up(self) -> None:
        """Each list has the one before it ten times: 10**12 values in a few hundred bytes."""
        tens = [",".join([f'{{"$ref":"$[{index}]"}}'] * 10) for index in range(12)]
        lists = ["[0]", *(f"[{ten}]" for ten in tens)]

        with pytest.raises(RemoteProtocolError, match="stands for"):
            fastjson.decode("[" + ",".join(lists) + "]", list)

    def test_references_cannot_nest_a_document_without_end(self) -> None:
        lists = [*(f'[{{"$ref":"$[{index}]"}}]' for index in range(1, 2000)), "[0]"]

        with pytest.raises(RemoteProtocolError, match="nested too deeply"):
            fastjson.decode("[" + ",".join(lists) + "]", list)


class TestTypedReading:
    def test_unknown_members_are_ignored(self) -> None:
        assert fastjson.decode('{"name":"n","new":{"x":[1]}}', Loose) == Loose("n")
        assert fastjson.decode("{name:'n',new:{x:[1]}}", Loose) == Loose("n")

    @pytest.mark.parametrize("data", ['{"kind":1}', '{"kind":"1"}', '{"kind":"PUSH"}'])
    def test_an_enum_may_come_as_position_or_old_name(self, data: str) -> None:
        assert fastjson.decode(data, Loose).kind is ConsumeType.CONSUME_PASSIVELY

    @pytest.mark.parametrize("data", ['{"kind":3}', '{"kind":-1}', '{"kind":"X"}', '{"kind":true}'])
    def test_an_unknown_enum_is_refused(self, data: str) -> None:
        with pytest.raises(RemoteProtocolError, match=r"\$\.kind"):
            fastjson.decode(data, Loose)

    def test_numbers_may_be_text_and_text_numbers(self) -> None:
        data = '{"name":5,"number":"6","rate":"1.5","isOn":"true","codes":["7",8],"tags":[9,true]}'

        decoded = fastjson.decode(data, Loose)

        assert decoded == Loose("5", 6, 0, 1.5, True, codes=[7, 8], tags=["9", "true"])

    def test_null_counts_as_absent(self) -> None:
        data = '{"name":null,"tags":null,"addresses":{0:"a","1":null},"maybe":null,"kind":null}'

        assert fastjson.decode(data, Loose) == Loose(addresses={0: "a"})

    def test_integer_keys_may_be_quoted(self) -> None:
        assert fastjson.decode('{"addresses":{"0":"a"}}', Loose).addresses == {0: "a"}
        assert fastjson.decode('{addresses:{"0":"a",1:"b"}}', Loose).addresses == {0: "a", 1: "b"}

    @pytest.mark.parametrize(
        "data",
        ["[]", "5", '{"number":2147483648}', '{"number":"x"}', '{"tags":{}}', '{"tags":[null]}',
         '{"addresses":{"x":"a"}}', '{"isOn":"perhaps"}', "{", b"\xff"],
    )  # fmt: skip
    def test_what_does_not_fit_is_refused(self, data: bytes | str) -> None:
        with pytest.raises(RemoteProtocolError):
            fastjson.decode(data, Loose)

    def test_the_reason_of_a_refusal_stays_short(self) -> None:
        with pytest.raises(RemoteProtocolError) as caught:
            fastjson.decode('{"kind":"' + "x" * 100_000 + '"}', Loose)

        assert len(caught.value.fact) < 400


class TestWriting:
    def test_bytes_of_a_body_are_those_of_java(self) -> None:
        assert fastjson.dumps(Layout()) == (
            b'{"array":[1,2],"bare":{1:["p"],2:[]},"empty":{},"numbers":[1,2],'
            b'"offs":{{"brokerName":"b","queueId":0,"topic":"t"}:5,'
            b'{"brokerName":"b","queueId":1,"topic":"t"}:6},"texts":["a","b"]}'
        )

    def test_text_is_escaped_as_fastjson_1_does(self) -> None:
        text = "\0\x07\b\t\n\x0b\f\r\x1f \"/'\\\x7f\x9f\xa0é中\u2028😀\ud800"

        assert fastjson.dumps(text) == (
            b'"\\u0000\\u0007\\b\\t\\n\\u000B\\f\\r\\u001F \\"/\'\\\\\\u007F\\u009F'
            + "\xa0é中\\u2028😀?".encode()
            + b'"'
        )

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (0.0, "0.0"), (-0.0, "-0.0"), (1.5, "1.5"), (100.0, "100.0"), (0.001, "0.001"),
            (1e10, "1.0E10"), (1e7, "1.0E7"), (9999999.0, "9999999.0"), (1e-5, "1.0E-5"),
            (12345678.9, "1.23456789E7"), (-2.5e-300, "-2.5E-300"),
            (1.7976931348623157e308, "1.7976931348623157E308"),
            (0.38333333333333336, "0.38333333333333336"),
            (float("nan"), "null"), (float("-inf"), "null"),
        ],
    )  # fmt: skip
    def test_doubles_are_written_as_java_writes_them(self, value: float, text: str) -> None:
        assert fastjson.dumps(value).decode() == text

    def test_atoms_have_one_form_each(self) -> None:
        class Number(enum.IntFlag):
            SIX = 6

        values = [None, True, False, -5, b"\x01\x02\xc8", ConsumeType.CONSUME_POP, Number.SIX]

        assert fastjson.dumps(values) == b'[null,true,false,-5,"AQLI","CONSUME_POP",6]'

    def test_null_members_of_objects_are_left_out(self) -> None:
        assert fastjson.dumps({"a": None, "b": 1}) == b'{"b":1}'

    @pytest.mark.parametrize("value", [{1, 2}, object(), {1.5: 1}, {None: 1}])
    def test_what_has_no_form_is_refused(self, value: Any) -> None:
        with pytest.raises(LocalProtocolError):
            fastjson.dumps(value)

    def test_a_value_that_contains_itself_is_refused(self) -> None:
        loop: list[Any] = []
        loop.append(loop)

        with pytest.raises(LocalProtocolError, match="contains itself"):
            fastjson.dumps(loop)

    @pytest.mark.parametrize("key", [0, MessageQueue("t", "b", 0)])
    def test_a_standard_body_takes_no_key_but_text(self, key: Any) -> None:
        with pytest.raises(LocalProtocolError, match="key"):
            fastjson.dumps({"table": {key: 1}}, only_standard_keys=True)

    def test_browser_compatible_is_sorted_quoted_and_ascii(self) -> None:
        """Java: a TreeMap sorts ids as numbers and names as UTF-16."""
        value = {"b": {10: "x", 2: "y"}, "a": "/é中😀\x7f\x1f\"\\'", "\uffff": 1, "😀": 2}

        assert fastjson.dumps_standard(value) == (
            b'{"a":"\\/\\u00E9\\u4E2D\\uD83D\\uDE00\\u007F\\u001F\\"\\\\\'",'
            b'"b":{"2":"y","10":"x"},"\\uD83D\\uDE00":2,"\\uFFFF":1}'
        )

    def test_an_object_cannot_be_a_key_in_standard_json(self) -> None:
        with pytest.raises(LocalProtocolError, match="key"):
            fastjson.dumps_standard({MessageQueue("t", "b", 0): 1})


class TestPrettyWriting:
    def test_fastjson_1_keeps_bare_keys_on_the_line_of_the_brace(self) -> None:
        assert fastjson.dumps_pretty(Layout(), PrettyStyle.FASTJSON_1).decode() == (
            '{\n\t"array":[1,2],\n\t"bare":{1:[\n\t\t\t"p"\n\t\t],2:[]\n\t},\n\t"empty":{},\n'
            '\t"numbers":[\n\t\t1,\n\t\t2\n\t],\n'
            '\t"offs":{{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":0,\n\t\t\t"topic":"t"\n\t\t}:5,{'
            '\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":1,\n\t\t\t"topic":"t"\n\t\t}:6\n\t},\n'
            '\t"texts":[\n\t\t"a",\n\t\t"b"\n\t]\n}'
        )

    def test_fastjson_2_begins_a_line_with_every_key(self) -> None:
        assert fastjson.dumps_pretty(Layout(), PrettyStyle.FASTJSON_2).decode() == (
            '{\n\t"array":[1,2],\n\t"bare":{\n\t\t1:[\n\t\t\t"p"\n\t\t],\n\t\t2:[]\n\t},\n'
            '\t"empty":{},\n\t"numbers":[1,2],\n'
            '\t"offs":{\n\t\t{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":0,\n\t\t\t"topic":"t"\n'
            '\t\t}:5,\n\t\t{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":1,\n\t\t\t"topic":"t"\n'
            '\t\t}:6\n\t},\n\t"texts":[\n\t\t"a",\n\t\t"b"\n\t]\n}'
        )

    def test_an_empty_list_of_a_bean_takes_three_lines_in_fastjson_2(self) -> None:
        layout = Layout(bare={}, numbers=[], offs={}, texts=[])

        text = fastjson.dumps_pretty(layout, PrettyStyle.FASTJSON_2)

        assert text.endswith(b'"texts":[\n\t\t\n\t]\n}')

    def test_a_java_set_stays_on_one_line_in_fastjson_1_only(self) -> None:
        value = {"s": ("a", "b")}

        assert fastjson.dumps_pretty(value, PrettyStyle.FASTJSON_1) == b'{\n\t"s":["a","b"]\n}'
        assert fastjson.dumps_pretty(value, PrettyStyle.FASTJSON_2) == (
            b'{\n\t"s":[\n\t\t"a",\n\t\t"b"\n\t]\n}'
        )

    def test_text_is_escaped_as_each_library_does(self) -> None:
        assert fastjson.dumps_pretty("\x0b\x7f", PrettyStyle.FASTJSON_1) == b'"\\u000B\\u007F"'
        assert fastjson.dumps_pretty("\x0b\x7f", PrettyStyle.FASTJSON_2) == b'"\\u000b\x7f"'

"""Whatever mqadmin prints becomes fields that say what they are about."""

import pytest

from tests.interop import mqadmin_text
from tests.interop.mqadmin_fields import FormError


def test_the_cells_of_a_row_are_named_by_what_the_row_is_about() -> None:
    text = "#Broker Name  #QID  #Last Updated\nbroker-a      0     2026-11-15 22:01:53,605\n"

    found = mqadmin_text.fields(text)

    assert found == {
        "columns": "Broker Name, QID, Last Updated",
        "broker-a/0.Broker Name": "broker-a",
        "broker-a/0.QID": "0",
        "broker-a/0.Last Updated": "2026-11-15T22:01:53,605",
    }


def test_a_group_that_is_offline_has_no_type_and_no_model() -> None:
    text = "#Group #Count #Version #Type #Model #TPS #Diff Total\nG   0   OFFLINE        0   20\n"

    found = mqadmin_text.fields(text)

    assert (found["G.Type"], found["G.Model"], found["G.Diff Total"]) == ("", "", "20")


def test_a_row_that_lacks_cells_is_not_guessed() -> None:
    with pytest.raises(FormError):
        mqadmin_text.fields("#Cluster Name #Topic #Consumer Group\nC\n")


def test_a_pair_below_a_table_is_none_of_its_rows() -> None:
    text = "#Broker Name  #QID  #Sent  #RT\nbroker-a      0     true   15\nAvg RT: 13.50\n"

    found = mqadmin_text.fields(text)

    assert found["Avg RT"] == "13.50"
    assert found["broker-a/0.RT"] == "15"


def test_pairs_stand_below_their_heading() -> None:
    text = "====127.0.0.1:1====\nkey    =  value\nempty  =  \n\n#Consumer Properties#\nlog  : x\n"

    assert mqadmin_text.fields(text) == {
        "127.0.0.1:1/key": "value",
        "127.0.0.1:1/empty": "",
        "Consumer Properties/log": "x",
    }


def test_an_object_is_taken_apart_with_those_inside_it() -> None:
    text = "SubGroup{name=G, retry=Retry{type=CUSTOM, policy=null}, attributes={}}\n"

    assert mqadmin_text.fields(text) == {
        "SubGroup.name": "G",
        "SubGroup.retry.type": "CUSTOM",
        "SubGroup.retry.policy": "null",
        "SubGroup.attributes": "{}",
    }


def test_objects_on_one_line_are_told_apart_by_their_group() -> None:
    text = "MessageTrack [consumerGroup=A, desc=x]MessageTrack [consumerGroup=B, desc=y]\n"

    found = mqadmin_text.fields(text)

    assert found["MessageTrack/A.desc"] == "x"
    assert found["MessageTrack/B.desc"] == "y"


def test_a_message_has_its_properties_and_its_body() -> None:
    text = "MSGID: 7F00 MessageExt [queueId=2, queueOffset=5, properties={KEYS=a b}] BODY: hello\n"

    assert mqadmin_text.fields(text) == {
        "BODY of 7F00": "hello",
        "says MessageExt/2/5 after": "MSGID 7F00",
        "MessageExt/2/5.queueId": "2",
        "MessageExt/2/5.queueOffset": "5",
        "MessageExt/2/5.properties.KEYS": "a b",
    }


def test_the_order_of_sentences_does_not_matter_but_their_number_does() -> None:
    assert mqadmin_text.fields("b\na\n") == mqadmin_text.fields("a\nb\n")
    assert mqadmin_text.fields("a\na\n") != mqadmin_text.fields("a\n")


def test_what_a_sentence_says_of_things_is_a_field_of_each() -> None:
    found = mqadmin_text.fields("reset offset of group[G], topic[T], timestamp(long)[-1]\n")

    assert (found["group"], found["topic"], found["timestamp(long)"]) == ("G", "T", "-1")


def test_an_entry_of_a_document_is_known_by_its_names() -> None:
    text = '{"queueDatas":[{"brokerName":"b","perm":4},{"brokerName":"a","perm":6}],"ids":{0:"x"}}'

    found = mqadmin_text.fields(text)

    assert (found["queueDatas/a.perm"], found["queueDatas/b.perm"], found["ids.0"]) == (
        *("6", "4"),
        "x",
    )

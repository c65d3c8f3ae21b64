"""What mqadmin prints is taken apart into the right fields, and a failure is never missed."""

import pytest

from tests.interop import mqadmin_fields
from tests.interop.mqadmin_fields import AdminFailure, ConfigUpdate, FormError, PermissionChange

REFUSED = """\
org.apache.rocketmq.tools.command.SubCommandException: TopicRouteSubCommand command failed
\tat org.apache.rocketmq.tools.command.topic.TopicRouteSubCommand.execute(Some.java:75)
Caused by: org.apache.rocketmq.client.exception.MQClientException: CODE: 17  DESC: No topic
See http://rocketmq.apache.org/docs/faq/ for further details.
\t... 3 more
"""


def test_a_table_has_its_cells_by_column() -> None:
    text = (
        "#Cluster Name   #Broker Name  #Timer(Progress)     #PCWait(ms) #Hour\n"
        "DefaultCluster  broker-a      1-0(0.0w, 0.0, 0.0)            0  0.06\n"
    )

    assert mqadmin_fields.table(text) == [
        {
            "Cluster Name": "DefaultCluster",
            "Broker Name": "broker-a",
            "Timer(Progress)": "1-0(0.0w, 0.0, 0.0)",
            "PCWait(ms)": "0",
            "Hour": "0.06",
        }
    ]


def test_the_last_cell_of_a_row_may_be_empty() -> None:
    text = "#Cluster Name #Topic #Consumer Group\nC  orders  GID\nC  TBW102     \n"

    assert [row["Consumer Group"] for row in mqadmin_fields.table(text)] == ["GID", ""]


def test_a_row_that_lacks_more_is_not_guessed() -> None:
    with pytest.raises(FormError):
        mqadmin_fields.table("#Cluster Name #Topic #Consumer Group\nC\n")


def test_names_come_sorted() -> None:
    assert mqadmin_fields.lines("b\na\n\n%RETRY%c\n") == ["%RETRY%c", "a", "b"]


def test_a_route_is_read_with_its_numbers_as_keys_and_its_lists_in_order() -> None:
    text = """{
\t"brokerDatas":[{"brokerAddrs":{0:"b:2"\n},"brokerName":"b"},{"brokerName":"a"}],
\t"queueDatas":[{"brokerName":"b","perm":6},{"brokerName":"a","perm":2}]
}"""

    route = mqadmin_fields.route(text)

    assert [broker["brokerName"] for broker in route["brokerDatas"]] == ["a", "b"]
    assert list(route["brokerDatas"][1]["brokerAddrs"].values()) == ["b:2"]
    assert [queues["perm"] for queues in route["queueDatas"]] == [2, 6]


def test_a_change_of_permission_tells_all_four_things() -> None:
    text = "wipe write perm of broker[broker-a] in name server[127.0.0.1:9876] OK, 31\n"

    assert mqadmin_fields.permission_change(text) == PermissionChange(
        "wipe", "broker-a", "127.0.0.1:9876", 31
    )


def test_settings_are_kept_apart_by_name_server() -> None:
    text = (
        "============h:1============\nlistenPort   =  1\nrocketmqHome  =  \n"
        "============h:2============\nlistenPort   =  2\n"
    )

    assert mqadmin_fields.namesrv_configs(text) == {
        "h:1": {"listenPort": "1", "rocketmqHome": ""},
        "h:2": {"listenPort": "2"},
    }


def test_an_update_of_settings_tells_where_and_what() -> None:
    text = "update name server config success![h:1, h:2]\nclusterTest : false\n"

    update = mqadmin_fields.config_update(text)

    assert update == ConfigUpdate(("h:1", "h:2"), "clusterTest", "false")


def test_a_refusal_is_told_with_its_code_and_description() -> None:
    with pytest.raises(AdminFailure) as caught:
        mqadmin_fields.lines(REFUSED)

    assert (caught.value.code, caught.value.description) == (17, "No topic")


def test_a_failure_that_is_no_refusal_has_no_code() -> None:
    text = "org.apache.rocketmq.remoting.exception.RemotingConnectException: connect to h:1 failed"

    problem = mqadmin_fields.failure(text)

    assert problem is not None
    assert problem.code is None
    assert "connect to h:1 failed" in problem.description


@pytest.mark.parametrize("text", ["", "mqadmin: what?", "update name server config success!"])
def test_any_other_text_is_not_taken_for_success(text: str) -> None:
    with pytest.raises(FormError):
        mqadmin_fields.config_update(text)

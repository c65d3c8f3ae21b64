"""Groups, and enums that arrive by name or position."""

import pytest

from cometmq.model.group import (
    ConsumeFromWhere,
    ConsumeType,
    GroupRetryPolicyType,
    MessageModel,
    SubscriptionGroupConfig,
)


@pytest.mark.parametrize(
    ("text", "member"),
    [
        ("CONSUME_POP", ConsumeType.CONSUME_POP),
        ("0", ConsumeType.CONSUME_ACTIVELY),
        ("2", ConsumeType.CONSUME_POP),
        ("PUSH", ConsumeType.CONSUME_PASSIVELY),
        ("PULL", ConsumeType.CONSUME_ACTIVELY),
        ("1", MessageModel.CLUSTERING),
        ("5", ConsumeFromWhere.CONSUME_FROM_TIMESTAMP),
        ("4", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
    ],
)
def test_a_member_is_found_by_name_or_position(
    text: str, member: ConsumeType | MessageModel | ConsumeFromWhere
) -> None:
    assert type(member)(text) is member


@pytest.mark.parametrize("text", ["3", "-1", "", "push", "99999999999999999999", 1, None])
def test_what_is_no_member_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="not a valid ConsumeType"):
        ConsumeType(text)


def test_a_new_group_has_the_defaults_of_a_5_x_broker() -> None:
    group = SubscriptionGroupConfig.with_defaults("g")

    assert group.group_name == "g"
    assert (group.retry_queue_nums, group.retry_max_times) == (1, 16)
    assert (group.broker_id, group.which_broker_when_consume_slowly) == (0, 1)
    assert group.consume_timeout_minute == 15
    assert group.group_retry_policy is not None
    assert group.group_retry_policy.type is GroupRetryPolicyType.CUSTOMIZED
    assert group.attributes == {}
    assert group.subscription_data_set is None

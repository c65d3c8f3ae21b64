"""What the benchmark of beginning measures, and when it says that a target is missed."""

from bench.startup import CLIENT_MS_MAX, FLOOR, ROWS, Row, summary


def test_every_row_has_a_name_of_its_own_and_the_floor_is_one_of_them() -> None:
    names = [row.name for row in ROWS]

    assert len(set(names)) == len(names)
    assert names[0] == FLOOR


def test_the_client_the_cluster_and_a_command_have_targets() -> None:
    targets = {row.name: row.ms_max for row in ROWS if row.ms_max is not None}

    assert targets == {
        "client made": CLIENT_MS_MAX,
        "cluster ready": 300.0,
        "cometmq topic ls": 250.0,
    }


def test_every_program_says_what_was_spent() -> None:
    assert all("spent = " in row.code for row in ROWS)
    for row in ROWS:
        compile(row.code, row.name, "exec")


def test_one_bad_round_is_not_a_verdict() -> None:
    row = Row("client made", "", 200.0)

    calm = summary(row, [150, 160, 170, 900, 155], [10] * 5)
    slow = summary(row, [250, 260, 270, 240, 255], [10] * 5)

    assert not calm.is_missed
    assert slow.is_missed
    assert (calm.milliseconds, calm.ratio) == (160, 16)

"""The matrix of clients and features is whole, and every row of it is tested."""

import re
from pathlib import Path

from tests.interop import clients, matrix

TESTS = Path(__file__).parent / "test_broker_clients.py"


def test_the_matrix_has_every_client() -> None:
    assert sorted(matrix.CLIENTS) == sorted(clients.NAMES)


def test_every_client_has_an_answer_to_every_feature() -> None:
    for name in matrix.CLIENTS:
        assert tuple(matrix.MATRIX[name]) == matrix.FEATURES, name


def test_an_answer_is_yes_or_no_with_a_reason() -> None:
    for answers in matrix.MATRIX.values():
        for answer in answers.values():
            assert re.fullmatch(r"yes|no: .{10,}", answer), answer


def test_every_feature_of_the_matrix_is_tested() -> None:
    tested = re.findall(r'every_client\("(\w+)"\)', TESTS.read_text())

    assert set(tested) == set(matrix.FEATURES)

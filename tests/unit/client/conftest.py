"""Tests here may be coroutines, bounded in time."""

from tests.unit.coroutines import pytest_pyfunc_call as pytest_pyfunc_call

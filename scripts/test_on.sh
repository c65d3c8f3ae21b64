#!/usr/bin/env bash
# test_on.sh PYTHON VERSION PYTEST-ARGUMENT…: tests on another Python, in a virtual environment of
# its own.
set -eu
cd "$(dirname "$0")/.."
python=$1 venv=.venv-$2
shift 2
if ! cmp -s locks/test.txt "$venv/installed.txt"; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
        -r locks/test.txt
    cp locks/test.txt "$venv/installed.txt"
fi
# From the source tree, with the plain core: the compiled one in the tree belongs to another Python.
PYTHONPATH=src COMETMQ_EXPECT_CORE=plain COMETMQ_PURE=1 \
    "$venv/bin/python" -m pytest -q -p no:cacheprovider "$@"

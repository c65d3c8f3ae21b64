#!/usr/bin/env bash
# Writes locks/*.txt from pyproject.toml: exact versions with hashes, valid for every supported Python
# and without the name of any package registry. dev.txt is for working on CometMQ, spark.txt for the Spark
# connector beside it, test.txt for the unit suites on another Python, run.txt for the package alone.
set -eu
cd "$(dirname "$0")/.."
command -v uv > /dev/null || {
    echo "error: uv is not installed" >&2
    echo "  next: pip install uv" >&2
    exit 1
}
lock() {
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
        --no-emit-index-url --no-header pyproject.toml "$@"
}
lock --extra compress --extra docs --extra dev --output-file locks/dev.txt
lock --extra spark --constraint locks/dev.txt --output-file locks/spark.txt
lock --group test --output-file locks/test.txt
lock --output-file locks/run.txt

#!/usr/bin/env bash
# Prints a Python that CometMQ runs on (3.11 or newer): $PYTHON if set, else the first that works.
set -eu
for candidate in ${PYTHON:-python3 python3.11 python3.12 python3.13 python3.14}; do
    if path=$(command -v "$candidate") &&
        "$path" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        echo "$path"
        exit 0
    fi
done
echo "error: CometMQ needs Python 3.11 or newer with venv; none found on PATH" >&2
echo "  next: install one, or name it: make PYTHON=/path/to/python3.12 $*" >&2
exit 1

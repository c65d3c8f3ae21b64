#!/usr/bin/env bash
# Prints a Java that Spark runs on (17 or newer): that of $JAVA_HOME, else the one on PATH.
set -eu
for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" java; do
    if path=$(command -v "$candidate") &&
        version=$("$path" -version 2>&1 | sed -nE 's/.* version "([0-9]+).*/\1/p' | head -1) &&
        [ "${version:-0}" -ge 17 ]; then
        echo "$path"
        exit 0
    fi
done
echo "error: Spark needs Java 17 or newer; none found in JAVA_HOME or on PATH" >&2
echo "  next: install one, or set JAVA_HOME" >&2
exit 1

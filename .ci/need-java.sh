#!/usr/bin/env bash
# Exits 0 if Spark will find Java 17 or later; else says in one line what to do.
set -euo pipefail

java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
if ! version=$("$java" -version 2>&1); then
    echo "Spark needs Java 17 or later, and '$java' does not run: install a JDK, or set JAVA_HOME to one." >&2
    exit 1
fi
major=$(sed -nE 's/.* version "([0-9]+).*/\1/p' <<<"$version" | head -n 1)
if [ "${major:-0}" -lt 17 ]; then
    echo "Spark needs Java 17 or later, and '$java' is version ${major:-unknown}: install one, or set JAVA_HOME." >&2
    exit 1
fi

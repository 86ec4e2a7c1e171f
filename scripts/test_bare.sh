#!/bin/sh
# Proves that a clone works on a bare machine: `env -i`, an empty home, a PATH of links to python3, make, git and the core
# utilities only, and (as root on Linux) no Java; then `make run` until its UI shows the assets, and a second start without network.
# The tests want two tools more: `runuser` starts their PostgreSQL where root runs them, `ps` shows processes that are left over.
# Packages are downloaded and built anew, unless UV_CACHE_DIR names a cache that may serve them.
# Usage: test_bare.sh [target] [VARIABLE=…]
set -eu
[ $# -gt 0 ] || set -- test
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/lakechime-bare.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
chmod 755 "$work"

# The system's Python, not one that a version manager puts before it: its launcher would need more than the PATH below.
for python in /usr/bin/python3 /usr/bin/python3.13 /usr/bin/python3.12 /usr/bin/python3.11 "$(python3 -c 'import sys; print(sys.executable)')"; do
    "$python" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && break
done

mkdir "$work/bin" "$work/home"
ln -s "$python" "$work/bin/python3"
for tool in make git sh env; do ln -s "$(command -v "$tool")" "$work/bin/$tool"; done
core="awk basename cat chmod cp cut date dirname expr find grep head id kill ln ls mkdir mktemp mv nproc printf pwd readlink rm rmdir sed
seq sleep sort tail tee test touch tr true uname uniq wc xargs runuser ps"
for tool in $core; do
    found=$(command -v "/usr/bin/$tool" || command -v "/bin/$tool" || command -v "/usr/sbin/$tool" || command -v "/sbin/$tool" || true)
    [ -z "$found" ] || ln -s "$found" "$work/bin/$tool"
done

# What may be uncommitted stays behind: a clone is what others get.
git clone --quiet "$root" "$work/clone"
cd "$work/clone"

without_java="" # an empty folder lies over the machine's Java folder, for the processes below only
if [ "$(id -u)" = 0 ] && [ -d /usr/lib/jvm ] && unshare -m true 2>/dev/null; then
    without_java='mount -t tmpfs none /usr/lib/jvm;'
fi
port=""
bare() { # what it is given, with nothing of this machine but core utilities; with a port, until a UI is served there
    [ -z "${UV_CACHE_DIR:-}" ] || set -- UV_CACHE_DIR="$UV_CACHE_DIR" "$@"
    set -- env -i HOME="$work/home" PATH="$work/bin" TMPDIR="$work" LANG=C.UTF-8 LAKECHIME_TEST_BARE=1 "$@"
    [ -z "$port" ] || set -- "$python" "$root/scripts/serves.py" "$port" "$@"
    if [ -n "$without_java" ]; then
        unshare -m sh -c "$without_java"' exec "$@"' sh "$@"
    else
        "$@"
    fi
}

echo "test-bare: make $1 in a clone${without_java:+, without Java}"
bare make --no-print-directory "$@"

port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
echo "test-bare: make run on port $port"
bare make --no-print-directory run RUN_ARGS="--port $port --speed 0.02" >"$work/run.log" 2>&1 || { tail -40 "$work/run.log"; exit 1; }
grep '^serves:' "$work/run.log"
port=""

# after the lake has run: a clone has no jars of Spark before
if unshare -n true 2>/dev/null; then
    echo "test-bare: second start without network"
    second=".venv/bin/python -c 'import lakechime_dagster'"
    [ ! -f lakechime_dagster/cli/main.py ] || second=".venv/bin/lakechime --version"
    [ ! -f lakechime_dagster/definitions.py ] || second="$second && VIRTUAL_ENV=$work/clone/.venv DAGSTER_DISABLE_TELEMETRY=yes .venv/bin/dg check defs"
    [ ! -f lakechime_dagster/spark/jvm.py ] || second="$second && .venv/bin/python -m lakechime_dagster.spark.jvm .lakechime/jars"
    bare "$(command -v unshare)" -n sh -c "sh scripts/bootstrap.sh && $second"
else
    echo "test-bare: a start without network cannot be tried here (unshare -n is not permitted)"
fi
echo "test-bare: ok"

#!/bin/sh
# Makes or refreshes .venv from requirements.lock. Finds a Python that fits, then hands over to bootstrap.py.
set -u
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

fits() {
    command -v "$1" >/dev/null 2>&1 && "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1
}

if [ -n "${PYTHON:-}" ] && ! fits "$PYTHON"; then
    echo "lakechime: PYTHON=$PYTHON is not a Python 3.11, 3.12 or 3.13; leave PYTHON unset or name one of these." >&2
    exit 1
fi
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    fits "$candidate" && exec "$candidate" "$here/bootstrap.py" "$@"
done
if command -v python3 >/dev/null 2>&1; then
    found=$(python3 -c 'import platform; print(platform.python_version())' 2>/dev/null)
    echo "lakechime: python3 is ${found:-broken}, but 3.11, 3.12 or 3.13 is needed; install the packages python3.12 and python3.12-venv." >&2
else
    echo "lakechime: python3 is missing; install the packages python3 and python3-venv (Python 3.11, 3.12 or 3.13)." >&2
fi
exit 1

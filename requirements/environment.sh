#!/bin/sh
# Brings the environment up to date: sh requirements/environment.sh runtime|dev FOLDER PYTHON [named]
#
# runtime: what Kornel runs with. dev: that, and the tools of its developers. The second grows out of the first.
# named: whoever called named PYTHON; then an environment of another version is made anew.
# An environment that cannot be used is made anew too: its Python is gone or another one, or its folder was moved.
set -eu

kind=$1 venv=$2 python=$3 named=${4:-}
stamp=$venv/.made-for
minimum=$(sed -n 's/^requires-python = ">=\([0-9.]*\)".*/\1/p' pyproject.toml)

version_of() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true
}

new_enough() {
    [ "${1%%.*}" -gt "${minimum%%.*}" ] || { [ "${1%%.*}" -eq "${minimum%%.*}" ] && [ "${1#*.}" -ge "${minimum#*.}" ]; }
}

# Prints why the environment cannot be used; nothing if it can.
find_fault() {
    if [ ! -x "$venv/bin/python" ]; then
        echo "it has no Python that could be started"
        return
    fi
    inside=$(version_of "$venv/bin/python")
    if [ -z "$inside" ]; then
        echo "its Python does not start"
    elif [ ! -d "$venv/lib/python$inside/site-packages" ]; then
        echo "its Python is $inside now, and it was made for another"
    elif ! new_enough "$inside"; then
        echo "its Python is $inside, and Kornel needs $minimum or newer"
    elif [ ! -f "$venv/bin/pip" ]; then
        echo "it was never completed"
    elif ! head -n 2 "$venv/bin/pip" | grep -qF "$(cd "$venv" && pwd -P)/bin/python"; then
        echo "it was made in another folder"
    elif [ -n "$named" ] && [ "$(version_of "$python")" != "$inside" ]; then
        echo "its Python is $inside, and $python is another version"
    fi
}

check_python() {
    found=$(version_of "$python")
    if [ -z "$found" ]; then
        echo "Kornel needs Python $minimum or newer, and there is no $python that starts." \
            "Name one: make PYTHON=/path/to/python3" >&2
        exit 1
    fi
    if ! new_enough "$found"; then
        echo "Kornel needs Python $minimum or newer, and $python is $found. Name another: make PYTHON=/path/to/python3" >&2
        exit 1
    fi
}

# Says whether the mark of kind $1 is newer than the project file and the lock files behind it.
marked_after() {
    mark=$stamp-$1
    shift
    [ -e "$mark" ] || return 1
    for file in pyproject.toml "$@"; do
        if [ "$file" -nt "$mark" ]; then return 1; fi
    done
}

# --no-deps: the lock files name every package; an entry missing from them must fail, not be fetched.
install() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "$@"
}

fault=
if [ -d "$venv" ] || [ -L "$venv" ]; then
    fault=$(find_fault)
    if [ -n "$fault" ]; then
        if [ -e "$venv/bin" ] && [ ! -e "$venv/pyvenv.cfg" ]; then
            echo "$venv is no environment of Python ($fault), so it is not replaced; remove it, or name another: make VENV=folder" >&2
            exit 1
        fi
        check_python
        echo "$venv is made anew: $fault"
        rm -rf "$venv"
    fi
else
    check_python
fi
[ -d "$venv" ] || "$python" -m venv "$venv"

if marked_after dev requirements/dev.lock; then exit 0; fi
if [ "$kind" = runtime ]; then
    if marked_after runtime requirements/runtime.lock requirements/build.lock; then exit 0; fi
    install --require-hashes -r requirements/runtime.lock -r requirements/build.lock
else
    install --require-hashes -r requirements/dev.lock
fi
install --no-build-isolation --editable .
touch "$stamp-$kind"

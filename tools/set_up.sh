#!/bin/sh
# Makes the virtual environment that every make target runs in, once; later runs see the stamp and return at once.
#
#   tools/set_up.sh [DIRECTORY] [core|demo|all]          default .venv all
#
# `core` has what tests of the client and the broker need, `demo` what the demo needs, `all` everything; a later set is
# added to an earlier one. It needs nothing but a Python >= 3.11 with the venv module; where a C compiler is there as
# well, the optional compiled part is built. Every dependency comes from a list of pins, by hash, and so does setuptools,
# which then installs the project in place. uv installs them, since it is quicker; where there is no uv, or only pip is
# configured to reach an index, pip does it. The stamp holds the digest of what was installed, so that a changed pin, a
# changed pyproject.toml or a change in C installs again, and a mere new time stamp on a file does not (nor does it need
# a network).
set -eu
cd "$(dirname "$0")/.."
venv=${1:-.venv}
set=${2:-all}
case $set in
    core) pins=tools/core.txt; takes="a few seconds" ;;
    demo) pins=tools/demo.txt; takes="about a minute, most of it pyspark" ;;
    all) pins=constraints.txt; takes="a minute or two, most of it pyspark" ;;
    *) echo "the set is core, demo or all, not $set" >&2; exit 2 ;;
esac

new_enough() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for candidate in ${PYTHON:-} python3.13 python3.12 python3.11 python3 python; do
        if new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    {
        echo "fencepost needs Python 3.11 or newer with the venv module, and found none on the PATH."
        echo "  Debian, Ubuntu:  apt-get install python3 python3-venv"
        echo "  macOS:           brew install python@3.12"
        echo "  elsewhere:       name one:  make PYTHON=/path/to/python3.12 $*"
    } >&2
    exit 1
}

wanted=$(cat constraints.txt pyproject.toml setup.py fencepost/protocol/_hot*.[ch] tools/*.txt tools/set_up.sh | cksum)
for installed in all "$set"; do
    stamp=$venv/.fencepost-$installed
    if [ -x "$venv/bin/python" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
        exit 0
    fi
done

if ! [ -x "$venv/bin/python" ]; then
    python=$(find_python)
    echo "Setting up $venv with $("$python" --version 2>&1) (once; $takes)"
    "$python" -m venv "$venv"
else
    echo "Completing $venv ($takes)"
fi
pip_install() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}
pip_install --require-hashes -r tools/uv.txt
uv_install() {
    "$venv/bin/python" -m uv pip install --quiet --python "$venv/bin/python" --compile-bytecode "$@"
}
uv_install --require-hashes -r "$pins" || {
    echo "uv could not install the dependencies (above is why); pip does it, which takes longer"
    pip_install --require-hashes -r "$pins"
}
pip_install --no-deps --no-build-isolation --editable .
"$venv/bin/python" -c '
from fencepost.protocol.compiled import record_code
if record_code() == "pure Python":
    print("Without a C compiler (or with FENCEPOST_PURE set) records go the way of plain Python: all works, but slower.")
'
echo "$wanted" >"$stamp"

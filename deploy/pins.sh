#!/bin/sh
# Renews every pin from pyproject.toml: constraints.txt for people, the shorter lists of smaller environments and of the
# images, and what installs them. `make pins` runs it, with the uv of .venv.
set -eu
cd "$(dirname "$0")/.."
compile() {
    uv pip compile --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-annotate --no-header --quiet "$@"
}
compile pyproject.toml --all-extras --upgrade --output-file constraints.txt
compile pyproject.toml --constraints constraints.txt --extra cluster --extra console --extra patterns --extra registry --output-file deploy/broker-image.txt
compile pyproject.toml --constraints constraints.txt --extra spark --output-file deploy/spark-image.txt
compile pyproject.toml --constraints constraints.txt --extra core --output-file tools/core.txt
compile pyproject.toml --constraints constraints.txt --extra cluster --extra demo --output-file tools/demo.txt
printf 'uv\nsetuptools>=77\n' | compile - --upgrade --output-file tools/uv.txt

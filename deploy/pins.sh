#!/bin/sh
# Renews every pin from pyproject.toml: constraints.txt for people, and the shorter lists that the images install.
# `make pins` runs it; it needs uv.
set -eu
cd "$(dirname "$0")/.."
compile() {
    uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-annotate --no-header --quiet "$@"
}
compile --all-extras --upgrade --output-file constraints.txt
compile --constraints constraints.txt --extra cluster --extra console --output-file deploy/broker-image.txt
compile --constraints constraints.txt --extra spark --output-file deploy/spark-image.txt

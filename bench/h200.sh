#!/usr/bin/env bash
# Checks and measures a built wheel on a machine that has a GPU and its driver, Python with numpy, onnx and PyTorch, and no way to fetch anything.
#
#   bench/h200.sh WHEEL RESULT.json [FOLDER]
#
# WHEEL is dmlvk's wheel for that machine's Python. RESULT.json receives the figures, PyTorch's beside ours. FOLDER holds .deb files of the Vulkan loader
# (libvulkan1 and what the driver needs beside it), unpacked for this run alone where the machine has no loader. QUICK=1 verifies and measures less.
set -euo pipefail
wheel=$(realpath "$1") result=$(realpath -m "$2") debs=${3:+$(realpath "$3")}
cd "$(dirname "$0")/.."

site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
if [[ -n $debs ]]; then
    for deb in "$debs"/*.deb; do dpkg -x "$deb" "$site/loader"; done
    LD_LIBRARY_PATH=$(find "$site/loader" -name 'libvulkan.so.1' -printf '%h\n')${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
fi
python3 -m pip install -q --no-index --no-deps --no-compile --target "$site/python" "$wheel"
export PYTHONPATH=$site/python PYTHONUNBUFFERED=1

section() { printf '\n=== %s (at %d s)\n' "$*" "$SECONDS"; }
section "devices"
python3 -m dmlvk devices
section "verify: every operator against its oracle"
python3 -m dmlvk verify ${QUICK:+--quick}
section "speed, PyTorch beside it"
python3 -m bench.run --against torch --json "$result" ${QUICK:+--quick}
section "summary"
python3 -m bench.compare "$result"

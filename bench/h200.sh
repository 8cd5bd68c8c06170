#!/usr/bin/env bash
# Checks and measures a built wheel on a machine that has a GPU and its driver, Python with numpy, onnx and PyTorch, and no way to
# fetch anything.
#
#   bench/h200.sh WHEEL RESULT.json [FOLDER]
#
# WHEEL is dmlvk's wheel for that machine's Python. RESULT.json receives the figures, PyTorch's beside ours. FOLDER holds .deb files
# of the Vulkan loader (libvulkan1 and what the driver needs beside it), unpacked for this run alone where the machine has no loader.
# WEBGPU names the wheel of ONNX Runtime's WebGPU provider for that Python, to measure models beside it: those of one node go to
# RESULT-webgpu.json, whole ones to RESULT-models.json. MODELS names the folder of the latter, as tools/fetch_models.py or
# bench.models.files fills it. QUICK=1 verifies only the quick cases. COMMIT names what was built, for the results.
# Every part runs whether or not an earlier one failed; the exit status is 1 if one did.
set -euo pipefail
wheel=$(realpath "$1") result=$(realpath -m "$2") debs=${3:+$(realpath "$3")} webgpu=${WEBGPU:+$(realpath "$WEBGPU")}
models=${MODELS:+$(realpath "$MODELS")}
cd "$(dirname "$0")/.."

site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
if [[ -n $debs ]]; then
    for deb in "$debs"/*.deb; do dpkg -x "$deb" "$site/loader"; done
    libraries=$(dirname "$(find "$site/loader" -name libvulkan.so.1)")
    export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
python3 -m pip install -q --no-index --no-deps --no-compile --target "$site/python" "$wheel"
export PYTHONPATH=$site/python PYTHONUNBUFFERED=1

failed=()
part() {
    printf '\n=== %s (at %d s)\n' "$*" "$SECONDS"
    python3 -m "$@" || failed+=("$1 $2")
}
part dmlvk devices
part dmlvk verify ${QUICK:+--quick}
part bench.run --against torch --json "$result" ${COMMIT:+--commit "$COMMIT"}
if [[ -n $webgpu ]]; then
    python3 -m pip install -q --no-index --no-deps --no-compile --target "$site/webgpu" "$webgpu"
    export PYTHONPATH=$site/webgpu:$PYTHONPATH
    part bench.run --against webgpu --json "${result%.json}-webgpu.json" ${COMMIT:+--commit "$COMMIT"}
    part bench.models --against torch,webgpu ${models:+--folder "$models"} --json "${result%.json}-models.json" \
        ${COMMIT:+--commit "$COMMIT"}
fi

printf '\n=== %d s; failed parts: %s\n' "$SECONDS" "${failed[*]:-none}"
((${#failed[@]} == 0))

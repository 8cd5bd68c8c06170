#!/usr/bin/env bash
# Checks and measures a built wheel on a machine that has a GPU and its driver, Python with numpy, onnx and PyTorch, and no way to
# fetch anything.
#
#   bench/h200.sh WHEEL FOLDER [LOADER]
#
# WHEEL is dmlvk's wheel for that machine's Python. FOLDER receives the accuracy card (verify.json), the results (bench.json) and,
# where jinja2 and matplotlib are installed, a page of each. LOADER is a folder with .deb files of the Vulkan loader (libvulkan1 and what the
# driver needs beside it), unpacked for this run alone where the machine has no loader. RIVALS is a folder with wheels of rivals that
# the machine lacks, such as ONNX Runtime's with the WebGPU provider. MODELS is a folder of .onnx files to measure beside the networks.
# QUICK=1 does the quick cases and sizes. COMMIT names what was built. Every part runs whether or not an earlier one failed; the exit
# status is 1 if one did.
set -euo pipefail
wheel=$(realpath "$1") folder=$(realpath -m "$2") loader=${3:+$(realpath "$3")}
rivals=${RIVALS:+$(realpath "$RIVALS")} models=${MODELS:+$(realpath "$MODELS")}
mkdir -p "$folder"

site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
if [[ -n $loader ]]; then
    for deb in "$loader"/*.deb; do dpkg -x "$deb" "$site/loader"; done
    libraries=$(dirname "$(find "$site/loader" -name libvulkan.so.1)")
    export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
python3 -m pip install -q --no-index --no-deps --no-compile --target "$site/python" "$wheel" ${rivals:+"$rivals"/*.whl}
export PYTHONPATH=$site/python PYTHONUNBUFFERED=1

failed=()
part() {
    printf '\n=== dmlvk %s (at %d s)\n' "$*" "$SECONDS"
    python3 -m dmlvk "$@" || failed+=("$1")
}
html=()
python3 -c 'import jinja2, matplotlib' 2>/dev/null && html=(--html)
commit=(${COMMIT:+--commit "$COMMIT"})
quick=(${QUICK:+--quick})
part devices
part verify "${quick[@]}" "${commit[@]}" --json "$folder/verify.json" ${html:+--html "$folder/verify.html"}
part bench "${quick[@]}" "${commit[@]}" --against all ${models:+--folder "$models"} --json "$folder/bench.json" \
    ${html:+--html "$folder/bench.html"}

printf '\n=== %d s; failed parts: %s\n' "$SECONDS" "${failed[*]:-none}"
((${#failed[@]} == 0))

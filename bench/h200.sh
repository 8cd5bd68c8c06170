#!/usr/bin/env bash
# Checks and measures a built wheel on a machine that has a GPU and its driver, Python with numpy, click, onnx and PyTorch, and no way
# to fetch anything.
#
#   bench/h200.sh WHEEL FOLDER [LOADER]
#
# WHEEL is dmlvk's wheel for that machine's Python; the benchmark itself runs from src/ beside this script, which goes there with it.
# FOLDER receives the accuracy card (verify.json), the results (bench.json) and, where jinja2 and matplotlib are installed, a page of each. LOADER is a folder with .deb files of the Vulkan loader (libvulkan1 and what the
# driver needs beside it), unpacked for this run alone where the machine has no loader. RIVALS is a folder with wheels of rivals, or of click, that
# the machine lacks, such as ONNX Runtime's with the WebGPU provider. MODELS is a folder of .onnx files to measure beside the networks.
# QUICK=1 does the quick cases and sizes. COMMIT names what was built. Every part runs whether or not an earlier one failed; the exit
# status is 1 if one did. A table at the end has a line of each.
set -euo pipefail
sources=$(realpath "$(dirname "$0")/src") wheel=$(realpath "$1") folder=$(realpath -m "$2") loader=${3:+$(realpath "$3")}
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
export PYTHONPATH=$site/python:$sources PYTHONUNBUFFERED=1

failed=0
table=()
log=$site/log
part() {  # part NAME MODULE ARGUMENT...: run it; its line of the table has the closing line of what it said
    local name=$1 start=$SECONDS verdict=ok
    shift
    printf '\n=== python3 -m %s (at %d s)\n' "$*" "$SECONDS"
    python3 -m "$@" 2>&1 | tee "$log" || { verdict=FAILED; failed=1; }
    table+=("$(printf '%-8s %-6s %5d s  %s' "$name" "$verdict" $((SECONDS - start)) "$(grep -v '^ *$' "$log" | tail -n 1)")")
}
html=()
python3 -c 'import jinja2, matplotlib' 2>/dev/null && html=(--html)
commit=(${COMMIT:+--commit "$COMMIT"})
quick=(${QUICK:+--quick})
part devices dmlvk devices
part verify dmlvk verify "${quick[@]}" "${commit[@]}" --json "$folder/verify.json" ${html:+--html "$folder/verify.html"}
part bench dmlvk_bench "${quick[@]}" "${commit[@]}" --against all ${models:+--folder "$models"} --json "$folder/bench.json" \
    ${html:+--html "$folder/bench.html"}

printf '\n=== %d s\n' "$SECONDS"
printf '%s\n' "${table[@]}"
exit $failed

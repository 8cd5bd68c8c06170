#!/usr/bin/env bash
# Every check of the project, each one run whether or not an earlier one failed, with a table at the end.
#
#   tools/run_tests.sh [PYTEST ARGUMENT]...
#
# The suite runs on the lavapipe of Debian's backports with the Vulkan validation layer and its synchronisation checks; then its quick part runs on the
# release's own lavapipe, which is older and slower and disagrees usefully. Where the first cannot be had, everything runs on the second.
set -uo pipefail
cd "$(dirname "$0")/.."

backports=$PWD/.cache/lavapipe-backports
installed=$(ls /usr/share/vulkan/icd.d/lvp_icd*.json 2>/dev/null | head -n 1)
export MESA_SHADER_CACHE_DIR=$PWD/.cache/mesa  # kept between runs: lavapipe compiles each kernel at its first dispatch
mkdir -p "$MESA_SHADER_CACHE_DIR"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

failed=0
table=()
check() {  # check NAME COMMAND...: run it, keep its closing line for the table
    local name=$1 verdict=ok
    shift
    printf '\n=== %s\n' "$name"
    local start=$SECONDS
    "$@" 2>&1 | tee "$log" || { verdict=FAILED; failed=1; }
    table+=("$(printf '%-46s %-6s %4d s  %s' "$name" "$verdict" $((SECONDS - start)) "$(grep -v '^ *$' "$log" | tail -n 1)")")
}

check "ruff" .venv/bin/ruff check
check "ruff format" .venv/bin/ruff format --check
check "mypy" .venv/bin/mypy

# Most of the time of a first run is lavapipe compiling kernels on one core, so the tests are spread over several processes.
workers=$(nproc)
((workers <= 8)) || workers=8
pytest=(.venv/bin/python -m pytest -n "$workers")
validated=(env DMLVK_VALIDATION=1 "${pytest[@]}")
if python3 tools/setup_lavapipe.py; then
    check "pytest, backported lavapipe, validation layer" env "VK_DRIVER_FILES=$backports/icd.json" "LD_LIBRARY_PATH=$backports/lib" "${validated[@]}" "$@"
    check "pytest, installed lavapipe, quick part" env "VK_DRIVER_FILES=$installed" "${pytest[@]}" -m quick "$@"
else
    printf '\n!!! ONE DRIVER ONLY: the whole suite runs on the installed lavapipe, and nothing on the backported one.\n'
    check "pytest, installed lavapipe, validation layer" env "VK_DRIVER_FILES=$installed" "${validated[@]}" "$@"
    table+=("pytest, backported lavapipe                    NOT RUN: the driver could not be had, see above")
fi

printf '\n=== all checks\n'
printf '%s\n' "${table[@]}"
exit $failed

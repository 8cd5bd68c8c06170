#!/usr/bin/env bash
# Every check of the project, each one run whether or not an earlier one failed, with a table at the end.
#
#   tools/run_tests.sh [--check | --full] [PYTEST ARGUMENT]...
#
# The suite runs on the lavapipe of Debian's backports with the Vulkan validation layer and its synchronisation checks, with subgroups of 4; then its quick
# part runs on the release's own lavapipe, which is older and slower, has subgroups of 8 and disagrees usefully. Where the first cannot be had, everything
# runs on the second.
# With --check: lint, types, the tests that need no device and the quick part on one driver, all from the sources.
# With --full: the tests marked "full" as well.
set -uo pipefail
cd "$(dirname "$0")/.."
unset PYTHONDONTWRITEBYTECODE  # each worker would compile every test anew
tier=
case ${1:-} in --check | --full) tier=$1; shift ;; esac

backports=$PWD/.cache/lavapipe-backports
installed=$(ls /usr/share/vulkan/icd.d/lvp_icd*.json 2>/dev/null | head -n 1)
export MESA_SHADER_CACHE_DIR=$PWD/.cache/mesa  # kept between runs: lavapipe compiles each kernel at its first dispatch
mkdir -p "$MESA_SHADER_CACHE_DIR"
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

failed=0
table=()
report() {  # report NAME STATUS SECONDS LOG: a line of the table, with the closing line of what the check said
    local verdict=ok
    (($2 == 0)) || { verdict=FAILED; failed=1; }
    table+=("$(printf '%-46s %-6s %4d s  %s' "$1" "$verdict" "$3" "$(grep -v '^ *$' "$4" | tail -n 1)")")
}
check() {  # check NAME COMMAND...: run it
    local name=$1 start=$SECONDS status
    shift
    printf '\n=== %s\n' "$name"
    "$@" 2>&1 | tee "$logs/log"
    status=${PIPESTATUS[0]}
    report "$name" "$status" $((SECONDS - start)) "$logs/log"
}
beside=()
start() {  # start NAME COMMAND...: run it beside what follows, as single threads allow, until gather
    local name=$1 log="$logs/${#beside[@]}"
    shift
    beside+=("$name")
    {
        local start=$SECONDS
        "$@" >"$log" 2>&1
        echo "$? $((SECONDS - start))" >"$log.end"
    } &
}
gather() {  # wait for all that was started and print it in order
    wait
    local index status seconds
    for index in "${!beside[@]}"; do
        printf '\n=== %s\n' "${beside[index]}"
        cat "$logs/$index"
        read -r status seconds <"$logs/$index.end"
        report "${beside[index]}" "$status" "$seconds" "$logs/$index"
    done
    beside=()
}

python3 tools/setup_drivers.py && two_drivers=1 || two_drivers=0
driver=("VK_DRIVER_FILES=$installed")
((two_drivers == 0)) || driver=("VK_DRIVER_FILES=$backports/icd.json" "LD_LIBRARY_PATH=$backports/lib")
# Subgroups of 4 instead of lavapipe's own 8, whose kernels take half as long again to compile. The machine code has a cache of its own.
narrow=("${driver[@]}" LP_NATIVE_VECTOR_WIDTH=128 "MESA_SHADER_CACHE_DIR=$MESA_SHADER_CACHE_DIR-narrow" "DMLVK_CACHE_DIR=$MESA_SHADER_CACHE_DIR-narrow")

# And without LLVM's own optimisations, a fifth less again. What whole networks run takes twice as long so: their tests have neither.
hasty=("${narrow[@]}" GALLIVM_PERF=nopt)

# Most of the time of a first run is lavapipe compiling kernels on one core, so the tests are spread over several processes.
workers=$(nproc)
((workers <= 8)) || workers=8
pytest=(.venv/bin/python -m pytest -n "$workers" --dist worksteal)
validated=(env DMLVK_VALIDATION=1 "${pytest[@]}")
also=" and not full"
[[ $tier != --full ]] || also=
all_checks() {  # all_checks: the table, and the end of the script, by whether all is well
    printf '\n=== all checks\n'
    printf '%s\n' "${table[@]}"
    exit $failed
}

if [[ $tier == --check ]]; then
    check "ruff" .venv/bin/ruff check
    check "ruff format" .venv/bin/ruff format --check
    start "mypy" .venv/bin/mypy
    check "pytest, host tests and quick ones on the device" env "${driver[@]}" PYTHONPATH=src:bench/src "${pytest[@]}" \
        tests/host tests/fuzz tests/device tests/onnx -m "(host or quick) and not slow and not full" "$@"
    gather
    all_checks
fi

# onnx's newest release makes its node cases when asked, which takes half a minute: once, and not in each process of the tests.
newest=(env PYTHONPATH=.cache/onnx-newest)
.venv/bin/python tools/setup_onnx.py && has_newest=1 || has_newest=0

start "mypy" .venv/bin/mypy
start "wheels in a clean environment" env "${driver[@]}" .venv/bin/python tools/check_wheel.py
((has_newest == 0)) || start "node cases of the newest onnx" "${newest[@]}" .venv/bin/python tests/node_cases.py
check "ruff" .venv/bin/ruff check
check "ruff format" .venv/bin/ruff format --check
check "documentation site" env NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict
gather

if ((two_drivers)); then
    check "pytest, backported lavapipe, validation layer" env "${hasty[@]}" "${validated[@]}" -m "not network$also" "$@"
    check "pytest, whole networks on the same" env "${driver[@]}" "${validated[@]}" -m "network$also" "$@"
    check "pytest, installed lavapipe, quick part" env "VK_DRIVER_FILES=$installed" "${pytest[@]}" tests/device tests/onnx -m "quick and not full" "$@"
else
    printf '\n!!! ONE DRIVER ONLY: the whole suite runs on the installed lavapipe, and nothing on the backported one.\n'
    check "pytest, installed lavapipe, validation layer" env "${driver[@]}" "${validated[@]}" -m "(network or not network)$also" "$@"
    table+=("pytest, backported lavapipe                    NOT RUN: the driver could not be had, see above")
fi
# What a newer release of onnx has and the environment's has not (tests/node_cases.py): node cases, versions that rows serve, and operators.
if ((has_newest)); then
    check "pytest, the newest onnx" "${newest[@]}" "${hasty[@]}" "${pytest[@]}" tests/host/test_onnx_network.py \
        tests/onnx/test_backend.py tests/onnx/test_attention.py tests/onnx/test_converters.py::test_converter "$@"
else
    table+=("pytest, the newest onnx                        NOT RUN: the release could not be had, see above")
fi
# As on lesser devices (docs/devices.md).
masked=("${validated[@]}" tests/device -m "quick and not full")
check "pytest, as MoltenVK, subgroups of 4" env "${hasty[@]}" DMLVK_PROFILE=moltenvk DMLVK_SUBGROUP_SIZE=4 "${masked[@]}" "$@"
check "pytest, as the least Vulkan 1.3" env "${hasty[@]}" DMLVK_PROFILE=vulkan13-minimum "${masked[@]}" "$@"
all_checks

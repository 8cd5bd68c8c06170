#!/usr/bin/env bash
# Installs the Debian packages that dmlvk needs and this machine lacks, and says which.
#
#   tools/setup_debian.sh [FURTHER PACKAGE]...
#
# Nothing is installed when nothing is missing. Without root, and without a sudo that asks no password, it names the packages and stops.
set -euo pipefail

say() { printf '[set-up] %s\n' "$*" >&2; }

# What a program can be asked for directly is asked for directly: Python and the compiler need not be Debian's.
missing=()
command -v g++ >/dev/null || missing+=(g++)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
python3 -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' || missing+=(python3-dev)

# The Vulkan loader, a driver that runs on the processor, the headers the native module compiles against, and what the caller names.
packages=(libvulkan1 mesa-vulkan-drivers libvulkan-dev "$@")
if command -v dpkg-query >/dev/null; then
    for package in "${packages[@]}"; do
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
    done
elif ! ldconfig -p | grep -q 'libvulkan\.so\.1'; then
    say "this is no Debian: install the counterparts of ${packages[*]} ${missing[*]} with this system's package manager"
    exit 1
fi
((${#missing[@]})) || exit 0

if ! command -v apt-get >/dev/null; then
    say "missing: ${missing[*]}; install their counterparts with this system's package manager"
    exit 1
fi
if ((EUID == 0)); then
    as_root=(env)
elif sudo -n true 2>/dev/null; then
    as_root=(sudo -n env)
else
    say "these Debian packages are missing, and this user may not install them: ${missing[*]}"
    say "run as root: apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
    exit 1
fi
say "installing Debian packages: ${missing[*]}"
apt=("${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o Dpkg::Use-Pty=0)
"${apt[@]}" update >/dev/null
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null  # errors are on stderr

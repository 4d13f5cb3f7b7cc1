#!/usr/bin/env bash
# Fetch Kustomize, which makes Kubernetes manifests of a folder as `kubectl apply -k` does, from Debian stable: a binary of
# 20 MB. Touches no state of the machine's own package manager.
#
#   build.sh OUTPUT
#
# Exit status: 0 fetched or already there, 75 when the package cannot be had (no apt-get, no network), else a fault of ours.
set -euo pipefail
source "$(dirname "$0")/../debian_packages.sh"
fetch_program "$1" trixie kustomize usr/bin/kustomize

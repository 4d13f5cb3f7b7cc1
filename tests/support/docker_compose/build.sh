#!/usr/bin/env bash
# Fetch Docker Compose, which reads and checks a compose file without an engine, from Debian stable: a binary of 60 MB.
# Touches no state of the machine's own package manager.
#
#   build.sh OUTPUT
#
# Exit status: 0 fetched or already there, 75 when the package cannot be had (no apt-get, no network), else a fault of ours.
set -euo pipefail
source "$(dirname "$0")/../debian_packages.sh"
fetch_program "$1" trixie docker-compose usr/libexec/docker/cli-plugins/docker-compose

#!/usr/bin/env bash
# Fetch Prometheus 3 and promtool, which stores samples for it, from Debian testing: a download of 46 MB with the package
# lists, a folder of 200 MB. Touches no state of the machine's own package manager. Debian builds it without receiving OTLP.
#
#   build.sh OUTPUT
#
# Exit status: 0 fetched or already there, 75 when the package cannot be had (no apt-get, no network), else a fault of ours.
set -euo pipefail
source "$(dirname "$0")/../debian_packages.sh"
fetch_program "$1" forky "prometheus promtool" usr/bin

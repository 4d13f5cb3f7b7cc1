#!/usr/bin/env bash
# Fetch VictoriaMetrics, a metrics database that takes OTLP and answers PromQL, from Debian stable: a download of 41 MB, a
# binary of 16 MB. Touches no state of the machine's own package manager.
#
#   build.sh OUTPUT
#
# Exit status: 0 fetched or already there, 75 when the package cannot be had (no apt-get, no network), else a fault of ours.
set -euo pipefail
source "$(dirname "$0")/../debian_packages.sh"
fetch_program "$1" trixie victoria-metrics usr/bin/victoria-metrics

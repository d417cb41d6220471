#!/usr/bin/env bash
# Exits 0 if PostgreSQL's server programs are installed; else says what to do. --install installs Debian's package.
set -euo pipefail

have() { compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || command -v postgres >/dev/null; }

have && exit 0
missing() {
    echo "The tests with killed processes need PostgreSQL's server, which is not installed. 'make postgres' installs" \
        "it as root on Debian; else install your system's package 'postgresql'. 'make test' does without it." >&2
    exit 1
}
[ "${1:-}" = --install ] && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null || missing
export DEBIAN_FRONTEND=noninteractive
# Debian's own cluster is not ours: it is neither made nor started.
mkdir -p /etc/postgresql-common/createcluster.d
echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/no-main-cluster.conf
{ apt-get update -qq && apt-get install -qq -y --no-install-recommends postgresql; } >/dev/null
have || missing
# The rules of the dashboard are checked with promtool; without it those tests are skipped.
apt-get install -qq -y --no-install-recommends prometheus >/dev/null || echo "promtool cannot be installed" >&2

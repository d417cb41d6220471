#!/usr/bin/env bash
# Exits 0 if PostgreSQL's server programs are installed; root installs Debian's package; else says what to do.
set -euo pipefail

have() { compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || command -v postgres >/dev/null; }

have && exit 0
remedy="The tests with killed processes need PostgreSQL's server: install your system's package 'postgresql'."
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "$remedy" >&2
    exit 1
fi
echo "installing PostgreSQL's server with apt-get"
export DEBIAN_FRONTEND=noninteractive
# Debian's own cluster is not ours: it is neither made nor started.
mkdir -p /etc/postgresql-common/createcluster.d
echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/no-main-cluster.conf
{ apt-get update -qq && apt-get install -qq -y --no-install-recommends postgresql; } >/dev/null
have || {
    echo "$remedy" >&2
    exit 1
}

#!/bin/sh
# Installs what the tests need beyond Go: a browser for the report's page.
# Debian, as root; does nothing where it is there already.
set -eu

if [ -x /usr/bin/chromium ]; then
	exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "install-test-deps: no /usr/bin/chromium, and only root can install it; browser tests will be skipped" >&2
	exit 0
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update && apt-get install -y --no-install-recommends chromium fonts-dejavu-core; } >"$log" 2>&1; then
	cat "$log" >&2
	exit 1
fi

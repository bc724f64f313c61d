#!/bin/sh
# Install what the browser tests need, but only as root, only with apt, and only what is missing.
# Without it those tests are skipped and say so.
set -u
command -v chromium >/dev/null 2>&1 && exit 0
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || exit 0
echo "installing chromium for the browser tests ..."
log=$(mktemp)
if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
  chromium; } >"$log" 2>&1; then
  echo "chromium could not be installed ($(tail -n 1 "$log")); browser tests will be skipped"
fi
rm -f "$log"

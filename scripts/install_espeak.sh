#!/bin/sh
# Install Debian's espeak-ng, which speaks what the tiny checkpoint is tested on, unless it is there.
set -eu
command -v espeak-ng >/dev/null && exit 0
echo "== installing espeak-ng with apt-get"
if [ "$(id -u)" = 0 ]; then
    apt-get update -q && apt-get install -q -y --no-install-recommends espeak-ng
elif command -v sudo >/dev/null; then
    sudo apt-get update -q && sudo apt-get install -q -y --no-install-recommends espeak-ng
else
    echo "espeak-ng is missing, and this user may not install it; as root: apt-get install espeak-ng" >&2
    exit 1
fi

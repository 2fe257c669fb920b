#!/bin/sh
# Install what the page's tests need: Debian's chromium, and Playwright in the virtual environment given.
# Usage: sh scripts/install_browser.sh .venv
set -eu

venv=${1:?"usage: sh scripts/install_browser.sh VENV"}
if [ ! -x "$venv/bin/python" ]; then
    echo "$venv is not a virtual environment; create it with: python3 -m venv $venv" >&2
    exit 1
fi

if ! command -v chromium >/dev/null 2>&1; then
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "chromium is missing, and this is not Debian: install it so that 'chromium' is on the PATH" >&2
        exit 1
    fi
    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null 2>&1; then
            echo "chromium is missing; run as root: apt-get update && apt-get install chromium" >&2
            exit 1
        fi
        as_root=sudo
    fi
    echo "== installing Debian's chromium"
    $as_root apt-get update -qq
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null
fi

# Playwright only drives the browser above; its own browsers are not downloaded.
if ! "$venv/bin/python" -c "import playwright" 2>/dev/null; then
    echo "== installing Playwright"
    "$venv/bin/python" -m pip install --disable-pip-version-check -q "playwright>=1.50,<2"
fi

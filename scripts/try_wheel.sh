#!/bin/sh
# Build the wheel, install it in an empty folder, and use it there: nothing of the checkout may be needed.
# usage: scripts/try_wheel.sh VENV      (a virtual environment whose Python builds and runs the wheel)
set -eu
python=$(cd "$1/bin" && pwd)/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pip="-m pip --disable-pip-version-check"

echo "== building the wheel"
"$python" $pip wheel -q --no-deps --wheel-dir "$work" .

echo "== installing it in an empty folder"
"$python" -m venv "$work/venv"
wheel=$(ls "$work"/realtime_server-*.whl)
"$work/venv/bin/python" $pip install -q "$wheel[embedded,files]"

cd "$work"
"$work/venv/bin/realtime-server" --version
echo "== running its demo as fast as it goes"
"$work/venv/bin/realtime-server" demo --pace 0

echo "== putting two clients on its server"
"$work/venv/bin/realtime-server" bench --clients 2 --seconds 8 --stagger 1 -- --engine fake --vad level

echo "== asking its server for the page"
"$work/venv/bin/python" - <<'EOF'
import re, signal, subprocess, sys, urllib.request

command = [sys.executable, "-m", "realtime_server", "serve", "--engine", "fake", "--vad", "level", "--port", "0"]
process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
for line in process.stderr:
    if found := re.search(r"http://[^\s,]+", line):
        break
else:
    sys.exit("the server did not start")
page = urllib.request.urlopen(found[0]).read().decode()
process.send_signal(signal.SIGTERM)
process.stderr.read()
assert "<html" in page and "AudioWorklet" in page, "that is not the page"
assert process.wait() == 0, f"the server ended with {process.returncode}"
print(f"the page has {len(page)} characters, the server stopped cleanly")
EOF
echo "== the wheel works"

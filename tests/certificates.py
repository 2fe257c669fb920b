"""Certificates for tests of TLS, made by openssl."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from realtime_server.doors.tls import TlsFiles


def make_certificate(folder: Path, name: str = "here") -> TlsFiles:
    """A certificate of localhost and 127.0.0.1 that signs itself, and its key; `name` is in it."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    files = TlsFiles(folder / f"{name}.pem", folder / f"{name}.key")
    command = ["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "2"]
    command += ["-out", str(files.certificate), "-keyout", str(files.key)]
    subprocess.run(command, check=True, capture_output=True)
    return files


def trusting(*files: TlsFiles) -> ssl.SSLContext:
    """What a client needs to trust these certificates and no others."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for each in files:
        context.load_verify_locations(each.certificate)
    return context

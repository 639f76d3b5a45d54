"""Real object stores on this machine, started for the tests and stopped after them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

KEY, SECRET = "resizepos", "resize-pos-secret"
READER = "mayread"  # of SeaweedFS: may read and write objects, but list none
_PATIENCE = 60.0  # seconds until a server must answer


@dataclass(frozen=True)
class ObjectServer:
    """A running store."""

    endpoint: str
    process: subprocess.Popen[bytes]
    key: str = KEY
    secret: str = SECRET

    def client(self) -> Any:
        """Return a client of its own, that shares nothing with the program."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=self.key,
            aws_secret_access_key=self.secret,
            config=Config(
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                retries={"mode": "standard", "max_attempts": 5},
            ),
        )

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which the AWS SDK finds it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }


def free_ports(count: int) -> list[int]:
    """Find ports that nobody listens on, low enough to have another one 10,000 above."""
    with contextlib.ExitStack() as open_sockets:
        found: list[int] = []
        # Processes that start servers at the same time have neighbouring numbers. Above 32,767 the
        # system takes ports for clients, and a client that gets this port would connect to itself.
        for port in range(10_000 + os.getpid() % 1_000 * 12, 22_767):
            sockets = [open_sockets.enter_context(socket.socket()) for _ in range(2)]
            try:
                for each, number in zip(sockets, (port, port + 10_000), strict=True):
                    each.bind(("127.0.0.1", number))
            except OSError:
                continue
            found.append(port)
            if len(found) == count:
                break
        return found


@contextlib.contextmanager
def running(command: list[str], endpoint: str, log: Path) -> Iterator[ObjectServer]:
    """Start a server, wait until it answers, and stop it in the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        _await(endpoint, process, log)
        yield ObjectServer(endpoint, process)
    finally:
        process.kill()
        process.wait()


def _await(endpoint: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(endpoint, timeout=2):
                return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code < 500:
                return
        except (OSError, HTTPException):
            pass
        time.sleep(0.05)
    raise RuntimeError(f"{endpoint} does not answer: {log.read_text(errors='replace')[-2000:]}")


def program(name: str) -> str | None:
    """Find a program that a package of this environment has installed."""
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return shutil.which(name, path=beside)


@contextlib.contextmanager
def seaweed(folder: Path, volumes: int = 40, megabytes: int = 256) -> Iterator[ObjectServer]:
    """Run SeaweedFS: it enforces the rules of S3 that matter here.

    It stores objects in volumes. By default they are small, so that tests need little space.
    """
    weed = program("weed")
    assert weed is not None
    s3, master, volume, filer = free_ports(4)
    (folder / "data").mkdir()
    identity = {
        "name": "test",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    reader = {
        "name": "reader",
        "credentials": [{"accessKey": READER, "secretKey": SECRET}],
        "actions": ["Read", "Write"],
    }
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [identity, reader]}))
    command = [
        *(weed, "server", "-dir", str(folder / "data"), "-ip", "127.0.0.1"),
        *("-master.port", str(master), "-volume.port", str(volume), "-filer.port", str(filer)),
        *(
            "-master.volumeSizeLimitMB",
            str(megabytes),
            "-volume.max",
            str(volumes),
            "-master.telemetry=false",
        ),
        *("-s3", "-s3.port", str(s3), "-s3.port.iceberg=0", "-s3.port.lance=0"),
        *("-s3.config", str(config)),
    ]
    with running(command, f"http://127.0.0.1:{s3}", folder / "log") as server:
        yield server


@contextlib.contextmanager
def moto(folder: Path) -> Iterator[ObjectServer]:
    """Run moto: fast, but it ignores some conditions."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with running(command, f"http://127.0.0.1:{port}", folder / "log") as server:
        yield server


@contextlib.contextmanager
def rclone(folder: Path) -> Iterator[ObjectServer]:
    """Run `rclone serve s3`: it copies parts, but does not return their ETag."""
    served = program("rclone")
    assert served is not None
    (port,) = free_ports(1)
    (folder / "data").mkdir()
    command = [
        *(served, "serve", "s3", str(folder / "data"), "--addr", f"127.0.0.1:{port}"),
        *("--auth-key", f"{KEY},{SECRET}", "--config", str(folder / "none")),
    ]
    with running(command, f"http://127.0.0.1:{port}", folder / "log") as server:
        yield server


@contextlib.contextmanager
def s3rver(folder: Path) -> Iterator[ObjectServer]:
    """Run npm's s3rver: it does not copy parts, and its credentials are fixed."""
    served = program("s3rver")
    assert served is not None
    (port,) = free_ports(1)
    (folder / "data").mkdir()
    command = [served, "-d", str(folder / "data"), "-a", "127.0.0.1", "-p", str(port)]
    with running(command, f"http://127.0.0.1:{port}", folder / "log") as server:
        yield ObjectServer(server.endpoint, server.process, "S3RVER", "S3RVER")


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[ObjectServer]:
    """Run npm's azurite: Azure's blob storage."""
    served = program("azurite-blob")
    assert served is not None
    (port,) = free_ports(1)
    command = [
        *(served, "--silent", "--location", str(folder / "data"), "--skipApiVersionCheck"),
        *("--blobHost", "127.0.0.1", "--blobPort", str(port), "--disableTelemetry"),
    ]
    with running(command, f"http://127.0.0.1:{port}", folder / "log") as server:
        yield server


@contextlib.contextmanager
def google(folder: Path) -> Iterator[ObjectServer]:
    """Run gcp-storage-emulator: Google's storage."""
    served = program("gcp-storage-emulator")
    assert served is not None
    (port,) = free_ports(1)
    command = [served, "start", "--host=127.0.0.1", f"--port={port}", "--in-memory"]
    with running(command, f"http://127.0.0.1:{port}", folder / "log") as server:
        yield server

"""Signatures of requests to S3 (version 4), as the AWS SDK makes them."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from resize_pos.containers.remote.s3_settings import PlainSettings

_METHOD = "AWS4-HMAC-SHA256"


def quoted_path(name: str) -> str:
    """Write the name of an object as it stands in a signed request."""
    return quote(name, safe="/~")


def quoted_query(fields: Mapping[str, str]) -> str:
    """Write the fields after the question mark, in the order in which they are signed."""
    pairs = sorted(
        (quote(name, safe="~"), quote(value, safe="~")) for name, value in fields.items()
    )
    return "&".join(f"{name}={value}" for name, value in pairs)


def signed(
    settings: PlainSettings,
    request: tuple[str, str, str],
    headers: Mapping[str, str],
    body: Iterable[memoryview],
    seconds: float | None = None,
) -> dict[str, str]:
    """Return all headers of a request (method, path, query), its signature among them.

    The bytes of the body are signed, too. So the server refuses those that changed on their way.
    """
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(seconds))
    digest = hashlib.sha256()
    for piece in body:
        digest.update(piece)
    stated = {
        **headers,
        "Host": settings.server.partition("://")[2],
        "X-Amz-Content-SHA256": digest.hexdigest(),
        "X-Amz-Date": moment,
        **({"X-Amz-Security-Token": settings.token} if settings.token else {}),
    }
    lines = sorted((name.lower(), " ".join(value.split())) for name, value in stated.items())
    names = ";".join(name for name, _ in lines)
    written = [*request, *(f"{name}:{value}" for name, value in lines), "", names]
    described = "\n".join([*written, digest.hexdigest()])
    scope = f"{moment[:8]}/{settings.region}/s3/aws4_request"
    key = f"AWS4{settings.secret}".encode()
    for word in scope.split("/"):
        key = _keyed(key, word)
    hashed = hashlib.sha256(described.encode()).hexdigest()
    signature = _keyed(key, "\n".join([_METHOD, moment, scope, hashed])).hex()
    stated["Authorization"] = (
        f"{_METHOD} Credential={settings.key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return stated


def _keyed(key: bytes, words: str) -> bytes:
    return hmac.digest(key, words.encode(), "sha256")

"""What the AWS SDK would find in environment variables alone: a server, a region and a key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.lazy_regex import lazy_regex

_SERVER = lazy_regex(r"https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?/?")
_REGION = lazy_regex(r"[a-z0-9-]{1,63}")
_WORD = lazy_regex(r"[!-~]+")
_USUAL_BUCKET = lazy_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")

_USED = frozenset(
    {
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_DEFAULT_REGION",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        "AWS_CA_BUNDLE",
        "AWS_CONFIG_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
    }
)
# These change nothing if the variables above are there.
_WITHOUT_EFFECT = frozenset({"AWS_EC2_METADATA_DISABLED", "AWS_PAGER", "AWS_DEFAULT_OUTPUT"})
_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"})


@dataclass(frozen=True, slots=True)
class PlainSettings:
    """A server and how to sign requests to it."""

    server: str  # https://host:port
    region: str
    key: str
    secret: str
    token: str
    authorities: str  # a file of certificates that are trusted; empty: those that the SDK brings


def plain_settings(variables: Mapping[str, str]) -> PlainSettings | None:
    """Return the settings if variables state all of them; None: the SDK has to look further.

    The SDK looks at these variables first. Any other variable of its own, a config file or a proxy
    may change what it does, so then it decides.
    """
    given = {name for name, value in variables.items() if value}
    if any(name.startswith("AWS_") for name in given - _USED - _WITHOUT_EFFECT):
        return None
    if _PROXIES & {name.upper() for name in given} or any(map(_holds_anything, _files(variables))):
        return None
    server = variables.get("AWS_ENDPOINT_URL_S3") or variables.get("AWS_ENDPOINT_URL") or ""
    key, secret = variables.get("AWS_ACCESS_KEY_ID", ""), variables.get("AWS_SECRET_ACCESS_KEY", "")
    token = variables.get("AWS_SESSION_TOKEN", "")
    region = variables.get("AWS_DEFAULT_REGION", "")
    if not _SERVER.fullmatch(server) or "amazonaws." in server or not _REGION.fullmatch(region):
        return None
    if not all(_WORD.fullmatch(word) for word in (key, secret, token or "none")):
        return None
    trusted = variables.get("AWS_CA_BUNDLE") or variables.get("REQUESTS_CA_BUNDLE") or ""
    return PlainSettings(server.rstrip("/"), region, key, secret, token, trusted)


def usual_bucket(name: str) -> bool:
    """Return whether the address of a bucket is the server's with its name; some need more."""
    return _USUAL_BUCKET.fullmatch(name) is not None and not name.endswith("--x-s3")


def _files(variables: Mapping[str, str]) -> tuple[str, str]:
    return (
        variables.get("AWS_CONFIG_FILE") or "~/.aws/config",
        variables.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials",
    )


def _holds_anything(name: str) -> bool:
    try:
        return Path(name).expanduser().stat().st_size > 0
    except (OSError, RuntimeError):  # no such file, or no home folder
        return False

"""What the person who starts the service decides, checked before a model is loaded."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from nfad.errors import NfadError
from nfad.service.access import ADMINISTER, OPERATE

TOKEN_LENGTH = 16  # characters; shorter ones can be guessed
MEGABYTE = 1_000_000
DATABASE = "inspections.db"  # in the data folder, where no other is named


@dataclass(frozen=True)
class Retention:
    """For how many inspections, or days, pictures are kept. Inspection records always are."""

    count: int | None = None
    days: int | None = None

    @classmethod
    def parse(cls, text: str) -> Retention:
        found = re.fullmatch(r"([1-9][0-9]{0,8})(d?)", text)
        if not found:
            raise NfadError(f"--keep takes a number of inspections such as 50000, or of days such as 30d; got {text!r}")
        number = int(found[1])
        return cls(days=number) if found[2] else cls(count=number)


@dataclass(frozen=True)
class Settings:
    """Bytes and seconds throughout."""

    data: Path
    db: str | None = None  # None: SQLite in `data`
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    has_tokens: bool = False  # made by `nfad station token`
    locked: bool = False  # whether only tokens of the role administer may change verdicts
    retention: Retention | None = None  # None: everything is kept
    places: int = 32  # length of a model's queue
    upload_limit: int = 64 * MEGABYTE
    least_free: int = 500 * MEGABYTE  # of the disk, left unused
    upload_seconds: float = 60.0
    uploads_at_once: int = 64
    silent_after: float | None = None  # without a photo: the camera, or its trigger, is gone

    def __post_init__(self) -> None:
        if self.token is not None and not re.fullmatch(rf"[!-~]{{{TOKEN_LENGTH},}}", self.token):
            raise NfadError(f"a token needs at least {TOKEN_LENGTH} ASCII characters and no blanks; choose another")
        if self.token is None and not self.has_tokens and not is_local(self.host):
            raise NfadError(
                f"{self.host} can be reached from other machines, so a token is needed; pass --token, set NFAD_TOKEN "
                "or make one with `nfad station token add`"
            )
        if self.silent_after is not None and not self.silent_after > 0:
            raise NfadError(f"--silent-after takes seconds above 0; got {self.silent_after:g}")
        for name in ("places", "upload_limit", "uploads_at_once"):
            if getattr(self, name) < 1:
                raise NfadError(f"{name} must be at least 1; got {getattr(self, name)}")

    @property
    def role_for_verdicts(self) -> str:
        return ADMINISTER if self.locked else OPERATE

    @property
    def database(self) -> str:
        return self.db or f"sqlite:///{(self.data / DATABASE).resolve()}"


def is_local(host: str) -> bool:
    """Whether only this machine can connect."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

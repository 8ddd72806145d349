"""What a client is told when it is not served: a status and one sentence."""

from __future__ import annotations

from nfad.errors import NfadError


class Refused(NfadError):
    """A request that gets no result. `retry_after` are seconds after which the same request may do better."""

    def __init__(self, status: int, sentence: str, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.status, self.retry_after = status, retry_after

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}

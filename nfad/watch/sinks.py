"""What a person writes for a receiver → the receiver."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nfad.errors import NfadError
from nfad.watch.delivery import Sender
from nfad.watch.senders import Mqtt, Webhook
from nfad.watch.sorting import WAYS, Sorter


def open_sinks(texts: Sequence[str], watched: Path) -> tuple[list[Sender], list[Sorter]]:
    """`copy:DIR`, `link:DIR` or `move:DIR`, `http(s)://…` and `mqtt(s)://…`; nothing is sent yet."""
    senders: list[Sender] = []
    sorters: list[Sorter] = []
    for text in texts:
        scheme, _, rest = text.partition(":")
        if scheme in WAYS and rest:
            sorters.append(Sorter(Path(rest), scheme, watched))
        elif scheme in ("http", "https"):
            senders.append(Webhook(text))
        elif scheme in ("mqtt", "mqtts"):
            senders.append(Mqtt(text))
        else:
            raise NfadError(
                f"{text!r} is no receiver; write copy:DIR, link:DIR, move:DIR, https://host/path or mqtt://host/topic"
            )
    names = [each.name for each in (*senders, *sorters)]
    if twice := {name for name in names if names.count(name) > 1}:
        raise NfadError(f"{', '.join(sorted(twice))} is named twice; once is enough")
    if len({sorter.folder for sorter in sorters}) < len(sorters):
        raise NfadError("two receivers sort into the same folder; give each its own")
    if len(sorters) > 1 and any(sorter.way == "move" for sorter in sorters):
        raise NfadError("a part that is moved cannot be sorted elsewhere too; use one move:DIR alone, or copy:DIR")
    return senders, sorters

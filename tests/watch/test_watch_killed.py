import json
import os
import random
import signal
import sys
import time
from contextlib import closing

import pytest
from watch.running import QUICK, names, until

from nfad.watch.ledger import Ledger
from nfad.watch.senders import Webhook
from nfad.watch.sorting import Sorter
from nfad.watch.watch import Watch


def survive(detector, folder, tmp_path, png, receiver, kills, seed):
    """A camera writes while the watcher is killed again and again; then all is counted."""
    chance = random.Random(seed)
    results, place, written = tmp_path / "results", tmp_path / "sorted", []

    def start():
        child = os.fork()  # the model is loaded once, here; to load it in each would take all the time there is
        if child == 0:
            try:
                senders = [Webhook(f"http://{receiver.address}/")]
                sorters = [Sorter(place, "copy", folder)]
                Watch(detector, "part", folder, results, senders=senders, sorters=sorters, pace=QUICK).run()
            finally:
                os._exit(1)
        return child

    def judged():
        return (results / "results.jsonl").read_bytes().count(b"\n") if (results / "results.jsonl").exists() else 0

    for turn in range(kills):
        before, child = judged(), start()
        for i in range(3):
            # A name is used once: of two parts that share one, the first may rightly be gone before it is seen.
            name, content = f"{chance.randrange(100)}-{turn}-{i}.png", png(len(written), defect=chance.random() < 0.3)
            half = chance.randrange(1, len(content))
            with (folder / name).open("wb") as file:
                file.write(content[:half])
                file.flush()
                time.sleep(chance.random() * 0.02)
                file.write(content[half:])
            written.append(name)
        if chance.random() < 0.8:  # the others may die before they have begun
            assert until(lambda before=before: judged() > before)
        time.sleep(chance.random() * 0.2)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    senders, sorters = [Webhook(f"http://{receiver.address}/")], [Sorter(place, "copy", folder)]
    Watch(detector, "part", folder, results, senders=senders, sorters=sorters, pace=QUICK).run(once=True)

    with closing(Ledger(results / "ledger.sqlite")) as ledger:
        records = ledger.after(0, 10**6)
        assert not ledger.refusals(sorters[0].name) and not ledger.refusals(senders[0].name)
    assert sorted(names(records)) == sorted(written)  # none lost, none twice
    assert [record.position for record in records] == list(range(1, len(records) + 1))
    assert all(each.is_readable and each.size == (folder / each.image).stat().st_size for each in records)
    text = (results / "results.jsonl").read_text()
    assert [json.loads(line)["id"] for line in text.splitlines()] == [record.id for record in records]
    filed = sorted(path.name for path in place.rglob("*.png"))
    wanted = [f"{each.image[:-4]}-{each.position:06}.png" for each in records]
    wanted += [f"{each.image[:-4]}-{each.position:06}.overlay.png" for each in records if each.verdict == "anomalous"]
    assert filed == sorted(wanted)
    # At least once and in order: a record may come again, but only as the one that was under way.
    positions = [int(id.rpartition("-")[2]) for id in receiver.ids]
    assert sorted(set(positions)) == [record.position for record in records]
    assert positions == sorted(positions)
    return len(records)


needs_fork = pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="forks a loaded model")


@needs_fork
def test_killed_at_random_moments_it_loses_and_repeats_nothing(detector, folder, tmp_path, png, receiver):
    assert survive(detector, folder, tmp_path, png, receiver, kills=8, seed=1) == 24


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_killed_a_hundred_times_it_loses_and_repeats_nothing(detector, folder, tmp_path, png, receiver, seed):
    assert survive(detector, folder, tmp_path, png, receiver, kills=100, seed=seed) == 300

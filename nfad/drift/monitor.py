"""One model over time: every part asks three questions of what came before it. docs/drift.md has the reasoning."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypedDict, Unpack

import numpy as np

from nfad.drift import words
from nfad.drift.betting import FLAGGED, MOST, SHIFTS, Above, Tail, most_above, shift
from nfad.drift.evidence import Evidence, alarm_level
from nfad.drift.numbers import Numbers, checked_names
from nfad.drift.ranks import Ranks, cells, rank_errors
from nfad.drift.state import UNABSORBED, UNJUDGED, Answer, Block, DriftState, block, verdict, with_moved_camera
from nfad.drift.unjudged import Unjudged
from nfad.errors import NfadError
from nfad.stats.conformal import conformal_threshold, smallest_rate

CUT = 0.2  # the highest-scoring share of normals, where defects are: left out where ordinary parts are compared
RECENT = 1000  # parts whose numbers are kept: for effects, and to be taken out of the history after an alarm
BLOCK, BLOCKS = 50, 400
DOUBTFUL, MOVED = 2.0, 4.0  # standard errors by which a bulk is off that is no longer said to stand, or to have moved
CROWD = (0.5, 0.9)  # flagged shares that may be defects or a change; no line makes nine defects in ten parts
PLAIN = 3.0  # standard errors that a person sees without an alarm, and is told are not yet enough for one
FEW = 5  # ordinary parts without which nothing is said of their median
SHOWN = ("unfiltered_score", words.MOVED)  # beside families: what nuisance moves
SPARED = 0.1  # share of the rate, for either line, that too few normals have drawn it too low


class Settings(TypedDict, total=False):
    """Those of a monitor, by keyword."""

    rate: float
    run_length: float
    flag_rate: float
    seed: int


class DriftMonitor:
    """Fed part by part; all it is follows from the normals and the parts in order (chance is seeded).

    While parts are exchangeable with the normals, P(alarm within m parts) ≤ rate + m / (2 run_length), and the mean
    number of parts before a false alarm is at least run_length, whatever the distributions and however few the normals.
    `flag_rate` is the detector's own false-alarm rate, `Detector.false_alarm_rate`. A photo that is not judged is None:
    it is no part, and only counted, under a promise of its own (`Unjudged`).
    """

    def __init__(
        self,
        normals: Mapping[str, Sequence[float]],
        *,
        rate: float = 0.01,
        run_length: float = 10_000,
        flag_rate: float = 0.01,
        seed: int = 0,
    ) -> None:
        if not 0 < rate < 1 or not 0 < flag_rate < 1:
            raise NfadError(f"rate and flag_rate must lie between 0 and 1; got {rate:g} and {flag_rate:g}")
        if not run_length >= 1:
            raise NfadError(f"run_length is a number of parts, at least 1; got {run_length:g}")
        self._names = checked_names(normals)
        held_out = np.array([normals[name] for name in self._names], dtype=np.float64).T
        if not np.isfinite(held_out).all():
            raise NfadError("the held-out normals hold a number that is not finite; fit the model again")
        self._held_out = held_out
        self._flag_rate = max(flag_rate, smallest_rate(len(held_out)))
        self._threshold = conformal_threshold(held_out[:, 0], self._flag_rate)
        self._line = conformal_threshold(held_out[:, 0], max(CUT, smallest_rate(len(held_out))))
        # Streams in order: what nuisance moves, the ordinary parts' score, every part's score; then those that compare
        # with a line instead of a history: most parts above that of ordinary ones, too many above the threshold.
        shown = [i for i, name in enumerate(self._names) if name in SHOWN or name.startswith(words.FAMILY)]
        self._columns = np.array([*shown, 0, 0])
        self._bulk, self._tail, self._majority, self._flags = range(len(shown), len(shown) + 4)
        self._tail_bets = Tail((self._flag_rate, 0.05, CUT))
        most = most_above(len(held_out), max(CUT, smallest_rate(len(held_out))), SPARED * rate)
        self._majority_bets = Above(max(0.5, most), MOST)
        self._flag_bets = Above(most_above(len(held_out), self._flag_rate, SPARED * rate), FLAGGED)
        bets = [SHIFTS] * (len(shown) + 1) + [*map(len, (self._tail_bets, self._majority_bets, self._flag_bets))]
        weights = [1 / 3 / len(shown)] * len(shown) + [1 / 6, 1 / 4, 1 / 6, 1 / 12]
        self._evidence = Evidence(bets, weights, alarm_level(rate, run_length), (1 - 2 * SPARED) * rate)
        self._ranks = Ranks(len(self._columns))
        self._ranks.count(cells(held_out[:, self._columns]), self._played(held_out[:, 0])[:, : self._majority])
        self._chance = np.random.default_rng(seed)
        self._parts = 0
        self._rows = np.zeros((RECENT, len(self._names)))  # rings, by the part's number
        self._cells = np.zeros((RECENT, len(self._columns)), dtype=np.int64)
        self._counted = np.zeros((RECENT, len(self._columns)), dtype=bool)
        self._bulk_p = np.full(RECENT, np.nan)
        self._blocks: deque[Block] = deque(maxlen=BLOCKS)
        self._unjudged = Unjudged(rate, run_length)

    @classmethod
    def replay(
        cls, normals: Mapping[str, Sequence[float]], parts: Iterable[Numbers], **settings: Unpack[Settings]
    ) -> DriftMonitor:
        """The monitor that has seen these parts in this order."""
        monitor = cls(normals, **settings)
        monitor.extend(parts)
        return monitor

    def extend(self, parts: Iterable[Numbers]) -> None:
        """Take in the next parts, which many at a time is quicker by far."""
        parts = iter(parts)
        while some := list(islice(parts, BLOCK)):
            rows = self._checked([numbers for numbers in some if numbers is not None])
            self._unjudged.extend([numbers is None for numbers in some])
            self._take(rows)

    def update(self, numbers: Numbers) -> None:
        """Take in the next part; one whose numbers will not do is refused and leaves no trace."""
        self.extend([numbers])

    def _checked(self, parts: Sequence[Mapping[str, float]]) -> np.ndarray:
        try:
            rows = np.array([[numbers[name] for name in self._names] for numbers in parts], dtype=np.float64)
        except KeyError as error:
            raise NfadError(f"a part has no {error}, which this model's normals have; was it judged by it?") from None
        if not np.isfinite(rows).all():
            part, name = np.argwhere(~np.isfinite(rows))[0]
            raise NfadError(
                f"{self._names[name]} of part {self._parts + part + 1} is {rows[part, name]}; "
                "drift is told by finite numbers, so leave such parts out"
            )
        return rows

    def _take(self, rows: np.ndarray) -> None:
        """A block at once, up to a part that raises or ends an alarm, then the rest: the same as one by one."""
        chances = 1 - self._chance.random((len(rows), len(self._columns)))
        while len(rows):
            room = BLOCK - self._parts % BLOCK
            taken = self._take_some(rows[:room], chances[:room])
            rows, chances = rows[taken:], chances[taken:]

    def _take_some(self, rows: np.ndarray, chances: np.ndarray) -> int:
        at = cells(rows[:, self._columns])
        played = self._played(rows[:, 0])
        counted = played[:, : self._majority] & ~self._alarmed()
        p = self._ranks.p_values(at, counted, chances)
        shifts = np.where(played[:, : self._tail, None], shift(p[:, : self._tail]), 1.0).reshape(len(rows), -1)
        above = self._majority_bets(rows[:, 0] > self._line)
        flagged = self._flag_bets(rows[:, 0] > self._threshold)
        returns = np.concatenate([shifts, self._tail_bets(p[:, self._tail]), above, flagged], axis=1)
        taken, new = self._evidence.update(returns, played, self._parts + 1)
        here = np.arange(self._parts + 1, self._parts + 1 + taken) % RECENT
        self._rows[here], self._cells[here], self._counted[here] = rows[:taken], at[:taken], counted[:taken]
        self._bulk_p[here] = np.where(played[:taken, self._bulk], p[:taken, self._bulk], np.nan)
        self._ranks.count(at[:taken], counted[:taken])
        self._parts += taken
        for stream in np.flatnonzero(new[: self._majority]).tolist():
            self._take_out(stream, self._evidence.since[stream])
        if new[self._flags]:
            self._take_out(self._tail, self._evidence.since[self._flags])
        if self._parts % BLOCK == 0:
            self._blocks.append(self._block(self._last(BLOCK)))
        return taken

    def state(self) -> DriftState:
        """The verdict now, with what it rests on."""
        nuisance = self._nuisance()
        tail = self._answer("tail", (self._tail, self._flags), ("score",))
        bulk, doubtful, lower = self._ordinary(nuisance, tail)
        if not nuisance.alarm and self._crowded(bulk, tail):
            since = min(answer.since for answer in (bulk, tail) if answer.since)
            tail = replace(tail, alarm=True, level=max(tail.level or 0.0, 1.0), since=since, moved=("score",))
            bulk, doubtful = Answer("bulk", False, None, None, (), words.CROWDED), True
        unjudged = self._unjudged.answer()
        told = verdict(nuisance.alarm, tail.alarm, bulk.alarm, doubtful, lower)
        told = with_moved_camera(told) if self.camera_moved else told
        dating = (bulk,) if told == UNABSORBED else (nuisance, tail)
        since = min((answer.since for answer in dating if answer.since), default=None)
        scores = self._seen((self._tail, self._flags), tail.since or since)[:, 0]
        if len(scores):
            tail = replace(tail, effect=words.tail_effect(self._threshold, self._flag_rate, tail.alarm, scores))
        filling = self._parts % BLOCK
        sentence = words.sentence(told, since, self._parts, nuisance, bulk, tail, doubtful)
        return DriftState(
            verdict=UNJUDGED if unjudged.alarm else told,
            sentence=words.with_unjudged(sentence, self._parts, self._unjudged.photos, unjudged),
            photos=self._unjudged.photos,
            parts=self._parts,
            since=since,
            nuisance=nuisance,
            bulk=bulk,
            tail=tail,
            not_judged=unjudged,
            normals=self._block(self._held_out, 0),
            blocks=(*self._blocks, self._block(self._last(filling))) if filling else tuple(self._blocks),
        )

    @property
    def camera_moved(self) -> bool:
        """Whether photos lie further off their place than at the fit; closer to it is nobody's worry."""
        if words.MOVED not in self._names:
            return False
        column = self._names.index(words.MOVED)
        stream = int(np.flatnonzero(self._columns == column)[0])
        if not self._evidence.alarmed[stream]:
            return False
        seen = self._last(self._parts + 1 - int(self._evidence.since[stream]))
        return bool(np.median(seen[:, column]) > np.median(self._held_out[:, column]))

    def _nuisance(self) -> Answer:
        shown = range(self._bulk)
        alarmed = sorted((i for i in shown if self._evidence.alarmed[i]), key=self._evidence.raised.__getitem__)
        answer = self._answer("nuisance", shown, tuple(self._names[self._columns[i]] for i in alarmed))
        leading = self._columns[alarmed[0] if alarmed else self._evidence.levels[: self._bulk].argmax()]
        if self.camera_moved:
            leading = self._names.index(words.MOVED)
        seen = self._seen(shown, answer.since)
        ordinary, expected = (rows[rows[:, 0] <= self._line][:, leading] for rows in (seen, self._held_out))
        if not len(seen):
            return answer
        if len(ordinary) < FEW:
            effect = words.nuisance_effect(self._names[leading], self._held_out[:, leading], seen[:, leading])
            return replace(answer, effect=f"too few ordinary parts to tell; of all parts, {effect}")
        effect = words.nuisance_effect(self._names[leading], expected, ordinary)
        plain = abs(rank_errors(expected, ordinary)) > PLAIN
        return replace(answer, effect=effect + words.not_yet(plain and not answer.alarm))

    def _crowded(self, bulk: Answer, tail: Answer) -> bool:
        """Whether most, but not nearly all, parts since an alarm are flagged: the bulk is then no longer ordinary."""
        changes = [answer.since for answer in (bulk, tail) if answer.since]
        if not changes:
            return False
        since = self._last(self._parts + 1 - min(changes))
        latter = since[len(since) // 2 :, 0]  # a change is easily dated too early
        low, high = CROWD
        return bool(low < (latter > self._threshold).mean() < high)

    def _ordinary(self, nuisance: Answer, tail: Answer) -> tuple[Answer, bool, bool]:
        """The bulk's answer; whether it is in doubt, given another's alarm; whether it fell under more nuisance."""
        streams = [self._bulk, self._majority]
        answer = self._answer("bulk", streams, ("score",))
        changes = [each.since for each in (nuisance, tail) if each.since]
        changed = min(changes, default=None)
        errors = max(map(self._bulk_errors, changes), default=0.0)
        if errors > MOVED and not answer.alarm:
            answer = replace(answer, alarm=True, level=1.0, since=changed, moved=("score",))
        # An alarm of its own that has ended since leaves a doubt: those parts are among the ones spoken of.
        doubtful = errors > DOUBTFUL or (changed is not None and int(self._evidence.ended[streams].max()) >= changed)
        seen = self._seen(streams, answer.since or changed)
        scores = seen[:, 0]
        if not len(scores):
            return answer, doubtful, False
        # Only more nuisance than at the fit is something to absorb: all may fall together, too.
        moved = [self._names.index(name) for name in nuisance.moved]
        more = any(rank_errors(self._held_out[:, i], seen[:, i]) > DOUBTFUL for i in moved)
        lower = more and rank_errors(self._held_out[:, 0], scores) < -DOUBTFUL
        plain = doubtful if changes else self._bulk_errors(self._parts + 1 - len(scores)) > PLAIN
        effect = words.bulk_effect(self._line, self._held_out[:, 0], scores)
        return replace(answer, effect=effect + words.not_yet(plain and not answer.alarm)), doubtful, lower

    def _answer(self, question: str, streams: Sequence[int], moved: tuple[str, ...]) -> Answer:
        """A question's answer, as yet without its effect."""
        chosen = np.array(streams)
        alarmed = chosen[self._evidence.alarmed[chosen]]
        level = float(self._evidence.levels[chosen].max())
        if not len(alarmed):
            return Answer(question, False, level, None, (), "")
        # Of several alarms the first to be raised dates the change: later ones had longer to wander.
        since = int(self._evidence.since[alarmed[self._evidence.raised[alarmed].argmin()]])
        return Answer(question, True, max(level, 1.0), since, moved, "")

    def _seen(self, streams: Sequence[int], since: int | None) -> np.ndarray:
        """The parts since then, or else since these streams' latest alarm has ended."""
        return self._last(self._parts + 1 - (since or int(self._evidence.ended[list(streams)].max()) + 1))

    def _alarmed(self) -> np.ndarray:
        """The streams whose history stands still: one stream's alarm is enough for the tail's question."""
        alarmed = self._evidence.alarmed[: self._majority].copy()
        alarmed[self._tail] |= self._evidence.alarmed[self._flags]
        return alarmed

    def _played(self, scores: np.ndarray) -> np.ndarray:
        """Whether each stream takes each part in: the last three take every part, the others ordinary ones."""
        played = np.repeat(scores[:, None] < self._line, self._flags + 1, axis=1)
        played[:, self._tail :] = True
        return played

    def _take_out(self, stream: int, since: int) -> None:
        """Take what came since the change out of the history, so that going on like this does not become normal."""
        here = self._ring(self._parts - since + 1)
        only = np.arange(len(self._columns)) == stream
        self._ranks.count(self._cells[here], only & self._counted[here], -1)
        self._counted[here, stream] = False

    def _bulk_errors(self, since: int) -> float:
        """By how many standard errors ordinary parts rank higher or lower since then, or too few parts are ordinary.

        Ranked among all before them, and among the held-out normals alone: the former know more of the normal, the
        latter nothing of a change that was there from the first part on.
        """
        here = self._ring(self._parts - since + 1)
        p, scores = self._bulk_p[here], self._rows[here, 0]
        ordinary = p[~np.isnan(p)]
        shifted = abs(ordinary.sum() - len(ordinary) / 2) * math.sqrt(12 / max(len(ordinary), 1))
        held_out = self._held_out[:, 0]
        apart = abs(rank_errors(held_out[held_out < self._line], scores[scores < self._line]))
        above = (2 * (scores > self._line).sum() - len(p)) / math.sqrt(len(p))
        return float(max(shifted, apart, DOUBTFUL + above))  # defects are a minority: from half of the parts on, doubt

    def _ring(self, parts: int) -> np.ndarray:
        """Where the latest parts are kept, as many as are."""
        return np.arange(self._parts - min(parts, self._parts, RECENT) + 1, self._parts + 1) % RECENT

    def _last(self, parts: int) -> np.ndarray:
        return self._rows[self._ring(parts)]

    def _block(self, rows: np.ndarray, first: int | None = None) -> Block:
        flagged = int((rows[:, 0] > self._threshold).sum())
        return block(self._names, rows, self._parts - len(rows) + 1 if first is None else first, flagged)

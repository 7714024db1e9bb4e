"""Simulated people, who judge on the real page: they read it, press its keys, and remember what they said of what they
saw.

Answers end in what they are worth, `worth 7`, and steps in whether they are right. A person of accuracy 0.8 says what
follows from that in eight of ten judgements; with a side bias of 0.3 it takes what was shown first in three of ten,
whatever it is worth.
"""

import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.browser import Tab

SHOWN = "[...document.querySelectorAll('.answers .raw, .steps .raw')].map(one => one.textContent)"
NEW = "document.querySelector('.prompt:not([data-seen]), .done')"
LABELS = "[...document.querySelectorAll('.steps > li')].map(one => Number(one.querySelector(':checked')?.value ?? NaN))"
WORDS = ("negligibly better", "slightly better", "better", "significantly better")


@dataclass
class Person:
    """Somebody at a tab, with what was `said`: the texts in the order in which they stood there, and the value."""

    tab: Tab
    name: str
    accuracy: float
    side_bias: float
    pace: float  # seconds of thought
    chance: random.Random
    said: list[tuple[list[str], dict]] = field(default_factory=list)

    def open(self, address: str) -> None:
        """Go to the page, the first time or again."""
        self.tab.open(f"{address}&person={self.name}")
        self.tab.wait(NEW)

    def finished(self) -> bool:
        """Whether nothing is left."""
        return self.tab.value("Boolean(document.querySelector('.done'))")

    def judge(self, mode: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        """One judgement; `meanwhile` begins just before it is submitted."""
        texts = self.tab.value(SHOWN)
        time.sleep(self.pace)
        value = {"pairwise": self._pair, "ranking": self._ranking, "steps": self._steps, "edit": self._edit}[mode](
            texts
        )
        self.said.append((texts, value))
        self.leave()
        meanwhile()
        self.tab.press("Enter", modifiers=2 * (mode == "edit"))

    def leave(self) -> None:
        """Mark what stands there, so that what comes next is told from it."""
        self.tab.value("document.querySelector('.prompt').dataset.seen = 'yes'")

    def wait(self) -> None:
        """Wait for what comes next."""
        self.tab.wait(NEW, 60)

    def undo(self) -> None:
        """Take the last judgement back."""
        self.leave()
        self.tab.press("u")
        self.wait()
        texts, _ = self.said.pop()
        assert self.tab.value(SHOWN) == texts, "it comes again as it was"

    def _right(self) -> bool:
        return self.chance.random() < self.accuracy

    def _pair(self, texts: list[str]) -> dict:
        left, right = map(_worth, texts)
        step = max(-4, min(4, (left - right) * (1 if self._right() else -1)))
        if self.chance.random() < self.side_bias:
            step = 2
        strength = f"{'a' if step > 0 else 'b'} {WORDS[abs(step) - 1]}" if step else "tie"
        self.tab.press(str(5 - step if step else 5))
        if self.chance.random() < 0.3:  # by the arrows, from where that is
            self.tab.press("ArrowRight")
            self.tab.press("ArrowLeft")
        return {"strength": strength}

    def _ranking(self, texts: list[str]) -> dict:
        worth = [_worth(text) * (1 if self._right() else -1) for text in texts]
        ranks = [1 + len({other for other in worth if other > one}) for one in worth]
        tiers = [[n for n, rank in enumerate(ranks) if rank == place] for place in sorted(set(ranks))]
        for _ in texts:  # what was taken back stands there again
            self.tab.press("Backspace")
        self.tab.value("document.querySelectorAll('.scores :checked').forEach(one => one.click())")
        by = self.chance.choice(("typing", "numbers", "dragging"))
        if by == "typing":
            self.tab.press("/")
            self.tab.type(" > ".join("=".join("abcd"[n] for n in tier) for tier in tiers))
            self.tab.press("Escape")
        elif by == "numbers":
            for tier in tiers:
                for place, number in enumerate(tier):
                    if place:
                        self.tab.press("=")
                    self.tab.press(str(number + 1))
        else:
            self._drag(tiers)
        scores = [None] * len(texts)
        if self.chance.random() < 0.5:
            scores[1] = {"helpful": 5, "truthful": 1, "harmless": 3}
            for name, score in scores[1].items():
                self.tab.value(f"document.querySelector('[name={name}-B][value=\"{score}\"]').click()")
        return {"ranks": ranks, "scores": scores if any(scores) else None}

    def _drag(self, tiers: list[list[int]]) -> None:
        """Each letter into its tier: the first of a tier behind the last one, the others into it."""
        for place, tier in enumerate(tiers):
            for number in tier:
                target = "#tiers .gap:nth-last-child(2)" if number == tier[0] else f"#tiers .tier[data-place='{place}']"
                if number == tier[0] == tiers[-1][0] and len(tier) == 1:  # nothing else is unranked: by the keyboard
                    self.tab.value(f"document.querySelector('#tiers [data-letter={'ABCD'[number]}]').focus()")
                    self.tab.press("ArrowUp")
                    continue
                self.tab.value(f"document.querySelector({target!r}).scrollIntoView({{block: 'center'}})")
                begin, end = self.tab.middle(f"#tiers [data-letter={'ABCD'[number]}]"), self.tab.middle(target)
                self.tab.mouse("mousePressed", begin)
                for part in (0.3, 0.7, 1.0):
                    way = [begin[n] + part * (end[n] - begin[n]) for n in (0, 1)]
                    self.tab.mouse("mouseMoved", (way[0], way[1]))
                self.tab.mouse("mouseReleased", end)
        self.tab.value("document.activeElement.blur()")

    def _steps(self, texts: list[str]) -> dict:
        labels: list[int | None] = self.tab.value(LABELS)  # what was taken back stands there again
        for place, text in enumerate(texts):
            good = text.endswith("right") == self._right()
            labels[place] = (1 if self.chance.random() < 0.8 else 0) if good else -1
            self.tab.press({1: "1", 0: "2", -1: "3"}[labels[place]])
            if not good:
                break
        self.tab.value("document.activeElement.blur()")
        return {"labels": labels}

    def _edit(self, texts: list[str]) -> dict:
        start = self.chance.choice((None, 0, 1))
        self.tab.press("0" if start is None else str(start + 1))
        added = f" {self.name} {self.chance.random()}"
        self.tab.value("document.querySelector('textarea').setSelectionRange(1e6, 1e6)")
        self.tab.type(added)
        return {"text": ("" if start is None else texts[start]) + added, "from": start}


def _worth(text: str) -> int:
    found = re.search(r"worth (\d+)$", text)
    assert found, text
    return int(found[1])

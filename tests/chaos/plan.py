"""Which trouble comes when. The same seed makes the same plan."""

from __future__ import annotations

import random
from dataclasses import dataclass

DECK = {
    "kill worker": 4,
    "kill supervisor": 2,
    "kill tree": 2,
    "stop worker briefly": 2,
    "stop worker for long": 2,
    "stop tree briefly": 1,
    "stop tree for long": 2,
    "terminate some backends": 3,
    "terminate all backends": 2,
    "restart fast": 2,
    "restart immediate": 2,
    "server away": 1,
    "deploy": 5,
    "pause": 3,
}
"""How many cards of each kind there are. The deck is dealt to its end, then shuffled again: no kind stays away for long."""

EVERY = 2.0
"""Seconds between troubles, on average."""


@dataclass(frozen=True, slots=True)
class Card:
    """One trouble: when, in seconds from the start; whom, as a number that finds somebody; how long or how much, 0…1."""

    at: float
    kind: str
    whom: int
    much: float


def make_plan(seed: int, seconds: float) -> list[Card]:
    """The troubles of a test that lasts ``seconds``. A short one is dense, and begins with one of each kind."""
    rng = random.Random(seed)
    every = min(EVERY, seconds / (len(DECK) + 2))
    hand = rng.sample(list(DECK), len(DECK))
    cards: list[Card] = []
    at = rng.uniform(0.5, 1) * every
    while at < seconds:
        if not hand:
            hand = rng.sample(list(DECK), counts=list(DECK.values()), k=sum(DECK.values()))
        cards.append(Card(round(at, 2), hand.pop(), rng.randrange(1000), round(rng.random(), 3)))
        at += every * rng.uniform(0.4, 1.6)
    return cards

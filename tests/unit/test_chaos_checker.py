"""The chaos test's checker: each rule finds a history that breaks it, and passes one beside it that does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos.checker import RULES, check
from tests.chaos.history import History, Move, Run, Trouble, Wish
from tests.chaos.plan import DECK, make_plan
from tests.chaos.report import failures, rescues

A, B = "host:11:aa", "host:22:bb"
"""Two workers, and so processes 11 and 22."""


class Story(History):
    """A history that is written line by line; times are seconds."""

    def __init__(self) -> None:
        super().__init__(committed={1}, statuses={}, lease=6.0, heartbeat=2.0)
        self._leases: dict[int, int] = {}

    def _move(self, at: float, job: int, new: str, **more: Any) -> None:
        before = next((m for m in reversed(self.moves) if m.job == job), None)
        of_old: dict[str, Any] = {"old": "", "attempts_old": None}
        if before:
            of_old = {name: getattr(before, name) for name in ("kind", "queue", "key", "max_attempts", "cancel")}
            of_old |= {"old": before.new, "attempts_old": before.attempts_new, "attempts_new": before.attempts_new}
            of_old |= {"lease_old": before.lease_new, "worker": before.worker if before.lease_new else None}
            of_old |= {"refunds_old": before.refunds_new, "refunds_new": before.refunds_new}
            of_old |= {"run_after": before.run_after}
        self.moves.append(Move(seq=len(self.moves) + 1, at=at, job=job, new=new, **{"who": "?"} | of_old | more))
        self.statuses[job] = new

    def enqueued(self, at: float = 0, job: int = 1, *, batch: int = 1, **more: Any) -> Story:
        self.created[job] = batch
        self._move(at, job, "pending", who="chaos enqueuer", run_after=at, **more)
        return self

    def claimed(self, at: float, job: int = 1, *, by: str = A, run: bool = True, batch: int = 1, **more: Any) -> Story:
        self._leases[job] = lease = 1000 * job + len(self.moves)
        attempts = next(m for m in reversed(self.moves) if m.job == job).attempts_new + 1
        given = {"who": "pgjobs claimer", "lease_new": lease, "attempts_new": attempts, "worker": by} | more
        self._move(at, job, "reserved", **given)
        if run:
            kind = self.moves[-1].kind
            self.runs.append(Run(job=job, kind=kind, lease=lease, pid=self.moves[-1].pid, batch=batch, start=at))
        return self

    def returned(self, at: float, job: int = 1, how: str = "returned") -> Story:
        """The latest run of the job says that it is over."""
        n = max(n for n, run in enumerate(self.runs) if run.job == job)
        run = self.runs[n]
        self.runs[n] = Run(
            job=job, kind=run.kind, lease=run.lease, pid=run.pid, batch=run.batch, start=run.start, end=at, how=how
        )
        return self

    def ended(self, at: float, job: int = 1, new: str = "done", *, who: str = "pgjobs completer", **more: Any) -> Story:
        self._move(at, job, new, who=who, **more)
        return self

    def ran(self, at: float, job: int = 1, *, by: str = A) -> Story:
        """From the claim to done, in a second."""
        return self.claimed(at, job, by=by).returned(at + 0.9, job).ended(at + 1, job)

    def trouble(self, kind: str, began: float, ended: float, *pids: int) -> Story:
        self.troubles.append(Trouble(kind=kind, began=began, ended=ended, pids=frozenset(pids)))
        return self

    def reaped(self, at: float, until: float, job: int = 1) -> Story:
        return self.ended(at, job, "pending", who="pgjobs keeper", until_old=until)

    def refunded(self, at: float, job: int = 1, *, who: str = "pgjobs claimer", **more: Any) -> Story:
        attempts = next(m for m in reversed(self.moves) if m.job == job).attempts_new - 1
        return self.ended(at, job, "pending", who=who, **{"attempts_new": attempts} | more)


def one() -> Story:
    """A job that was enqueued at 0."""
    return Story().enqueued()


def with_(story: Story, **fields: Any) -> Story:
    for name, value in fields.items():
        setattr(story, name, value)
    return story


def stopped(seconds: float, reaped: float = 7.1, until: float = 7.0) -> Story:
    """The first worker is stopped at 1.5 for so long, its lease lapses, another runs the job, and the first goes on."""
    story = one().claimed(1).trouble("stop worker for long", 1.5, 1.5 + seconds, 11).reaped(reaped, until)
    story.returned(12)
    return story.claimed(8, by=B).returned(9).ended(9.1)


def killed(by: str, *, since: float = 1.5, **more: Any) -> Story:
    """Something happens to process 11, and its undertaker comes at 2."""
    story = one().claimed(1)
    story.ended(2, new="pending", who="pgjobs undertaker", **more)
    return story.trouble(by, since, 2.5 if by.startswith("stop") else 1.9, 11).ran(2.5, by=B)


def suspect(also: float) -> Story:
    """A suspect runs from 1 to 3, and another job in its process from ``also`` on."""
    story = one().enqueued(0, 2).claimed(1, suspect=True).returned(3).ended(3.1)
    return story.claimed(also, 2).returned(also + 1, 2).ended(also + 1.1, 2)


def keyed(second: float) -> Story:
    """Two jobs of one key; the first lives from 0 to 2."""
    story = Story().enqueued(0, 1, key="k", kind="keyed")
    if second < 2:
        return story.enqueued(second, 2, key="k", kind="keyed").ran(1, 1).ran(3, 2)
    return story.ran(1, 1).enqueued(second, 2, key="k", kind="keyed").ran(second + 1, 2)


def wished(at: float) -> Story:
    story = Story().enqueued(0, 1, key="k", kind="keyed").ran(1, 1)
    story.wishes.append(Wish(batch=1, kind="keyed", key="k", at=at))
    return story


def stuck(recorded: bool) -> Story:
    """The attempt ends while its thread runs on."""
    story = one().claimed(1).ended(3, new="pending").ran(4, by=B)
    story.runs[0] = Run(job=1, lease=story.runs[0].lease, pid=11, batch=1, start=1, end=9, how="Interrupted")
    return with_(story, timeouts={(1, A)} if recorded else set())


def stuck_and_greedy() -> Story:
    """The attempt was recorded as timed out, its thread runs on, and its process claims another job."""
    return stuck(True).enqueued(1, 2).ran(5, 2)


def frozen(gone: float, **more: Any) -> Story:
    """A job freezes its process at 2."""
    return with_(one().ran(1), deadly=[(11, 2.0)], gone={11: gone}, **more)


def leases_lapse(trouble: str) -> Story:
    story = one().claimed(1, run=False)
    if trouble:
        story.trouble(trouble, 1.5, 6, *((11,) if trouble.startswith(("stop", "deploy")) else ()))
    return story.reaped(7.1, 7.0).ran(8, by=B)


def twice_under_one_lease() -> Story:
    story = one().ran(1)
    story.runs.append(story.runs[0])
    return story


def effect(status: str, times: int, key: int = 1) -> Story:
    story = (
        Story().enqueued(kind="effect").claimed(1).returned(1.9, how="returned" if status == "done" else "ValueError")
    )
    story.ended(2, new=status, who="chaos handler" if status == "done" else "pgjobs completer")
    story.effects[key] = times
    return story


def without_row() -> Story:
    story = one()
    story.moves.clear()
    story.statuses.clear()
    return story


def reaped_early() -> Story:
    return one().claimed(1, run=False).trouble("stop worker for long", 1.2, 9, 11).reaped(6.5, 7.0).ran(8, by=B)


def released_late() -> Story:
    """GRACE is over: the job is given back, and its handler lives a moment longer than that."""
    story = one().claimed(1).refunded(4).ran(4.1, by=B)
    story.runs[0] = Run(job=1, lease=story.runs[0].lease, pid=11, batch=1, start=1, end=4.2, how="Interrupted")
    return story


def never_ended() -> Story:
    """Two runs, and nothing that ended the first one's lease."""
    story = one().ran(1).ended(3, new="pending", who="chaos operator").ran(4, by=B)
    story.runs[0] = Run(job=1, lease=99, pid=11, batch=1, start=1)
    return story


BROKEN: dict[str, dict[str, Callable[[], Story]]] = {
    "every_committed_job_ended": {
        "is pending": one,
        "is reserved": lambda: one().claimed(1),
        "was lost": without_row,
        "a wish is left": lambda: with_(one().ran(1), wishes_left=1),
    },
    "nothing_rolled_back_exists_or_ran": {
        "exists": lambda: with_(one().ran(1), committed=set()),
        "ran": lambda: with_(
            without_row(), runs=[Run(job=1, lease=5, pid=11, batch=-1, start=1, end=2, how="returned")]
        ),
    },
    "rows_move_as_drawn": {
        "from nothing to done": lambda: one().ended(1, new="done"),
        "a worker revives": lambda: one().ran(1).ended(3, new="pending").ran(4),
        "a move is missing": lambda: one().claimed(1).ended(2, new="done", old="pending"),
        "the row says otherwise": lambda: with_(one().ran(1), statuses={1: "dead"}),
    },
    "one_run_and_one_outcome_a_claim": {
        "no outcome": lambda: with_(one().claimed(1), statuses={1: "done"}),
        "two outcomes": lambda: one().ran(1).ended(3, new="dead", old="done", lease_old=1001),
        "two handlers": twice_under_one_lease,
        "a handler out of nothing": lambda: with_(one(), runs=[Run(job=1, lease=5, pid=11, batch=1, start=1)]),
        "returned, and retried": lambda: one().claimed(1).returned(2).ended(2.1, new="pending").ran(3),
        "one lease for two claims": lambda: (
            one().claimed(1, lease_new=7).ended(2, new="pending").claimed(3, lease_new=7).ended(4)
        ),
    },
    "no_two_runs_at_once": {
        "nothing happened": lambda: stopped(0),
        "stopped for a moment only": lambda: stopped(2.5),
        "reaped too soon": lambda: stopped(8, reaped=6.9),
        "never ended": never_ended,
        "a deploy is no excuse": lambda: (
            one()
            .claimed(1)
            .returned(20)
            .trouble("deploy", 1, 20, 11)
            .reaped(7.1, 7)
            .claimed(8, by=B)
            .returned(9)
            .ended(9)
        ),
        "stopped after the lease had lapsed": lambda: with_(
            stopped(0, reaped=12), troubles=[Trouble(kind="stop", began=7, ended=12, pids=frozenset({11}))]
        ),
        "an undertaker that came before the end": lambda: with_(killed("pause"), gone={11: 5.0}),
        "stuck, and its process claims more": stuck_and_greedy,
        "another worker's trouble": lambda: with_(
            stopped(8), troubles=[Trouble(kind="stop tree for long", began=1, ended=9, pids=frozenset({22}))]
        ),
        "the first one wrote it off": lambda: stuck(False),
        "ended by an operator": lambda: (
            one().claimed(1).returned(5).ended(2, new="pending", who="chaos operator").ran(3, by=B)
        ),
    },
    "lapses_without_cause": {
        "lapsed": lambda: leases_lapse(""),
        "lapsed by a deploy": lambda: leases_lapse("deploy"),
        "ended by itself": lambda: with_(leases_lapse("deploy"), gone={11: 2.0}),
        "reaped before the time": reaped_early,
        "undertaken": lambda: killed("pause"),
        "undertaken after a short stop": lambda: killed("stop worker briefly"),
        "undertaken by a deploy": lambda: killed("deploy"),
        "finished by a deploy, and had not returned": lambda: (
            one().claimed(1).trouble("deploy", 1.5, 6, 11).ended(5, who="pgjobs undertaker")
        ),
    },
    "frozen_processes_go": {
        "too late": lambda: frozen(9.5),
        "never": lambda: with_(one().ran(1), deadly=[(11, 2.0)]),
        "stopped, and still too late": lambda: frozen(
            13, troubles=[Trouble(kind="stop worker for long", began=3, ended=6, pids=frozenset({11}))]
        ),
    },
    "effects_exactly_once": {
        "twice": lambda: effect("done", 2),
        "not at all": lambda: effect("done", 0),
        "of a failed run": lambda: effect("dead", 1),
    },
    "deploys_burn_no_attempt": {
        "burnt": lambda: one().claimed(1).refunded(2, attempts_new=1).ran(3),
        "the fifth": lambda: one().claimed(1).refunded(2, attempts_new=1, refunds_old=4).ran(3),
    },
    "attempts_within_bounds": {
        "one too many": lambda: Story().enqueued(max_attempts=1).claimed(1).returned(2).ended(2, new="pending").ran(3),
        "too soon": lambda: Story().enqueued(0).claimed(1, run_after=2.0).returned(3).ended(3),
    },
    "one_live_job_a_key": {"two at once": lambda: keyed(1)},
    "no_wish_is_swallowed": {
        "no run after it": lambda: wished(1.5),
        "no job at all": lambda: with_(Story(), wishes=[Wish(batch=1, kind="keyed", key="k", at=1)]),
    },
    "suspects_run_alone": {
        "a neighbour from before": lambda: suspect(0.5),
        "a neighbour that came": lambda: suspect(2),
    },
    "harmless_jobs_end_well": {
        "dead": lambda: one().claimed(1).returned(2, how="ValueError").ended(3, new="dead"),
    },
    "pauses_hold": {
        "claimed meanwhile": lambda: with_(Story().enqueued(queue="q").ran(5), pauses=[("q", 1.0, 9.0)]),
    },
}


GOOD: dict[str, Callable[[], Story]] = {
    "nothing": Story,
    "one": lambda: one().ran(1),
    "rolled back": lambda: with_(without_row(), committed=set()),
    "cancelled": lambda: one().ended(1, new="cancelled", who="chaos operator"),
    "retried": lambda: one().claimed(1).returned(2, how="ValueError").ended(2.1, new="pending").ran(3),
    "revived by the operator": lambda: (
        Story()
        .enqueued(kind="failing", max_attempts=1)
        .claimed(1)
        .returned(2, how="ValueError")
        .ended(3, new="dead")
        .ended(4, new="pending", who="chaos operator", max_attempts=2)
        .ran(5)
    ),
    "stopped for longer than the lease": lambda: stopped(8),
    "stopped right after a beat": lambda: stopped(5.4),
    "cut off for the lease": lambda: with_(
        stopped(0), troubles=[Trouble(kind="server away", began=1.2, ended=6, pids=frozenset())]
    ),
    "frozen by its own job, and its supervisor stopped": lambda: with_(
        leases_lapse(""), deadly=[(11, 1.5)], gone={11: 6.0}
    ),
    "frozen, and stopped for a while": lambda: frozen(
        11, troubles=[Trouble(kind="stop worker for long", began=3, ended=6, pids=frozenset({11}))]
    ),
    "the machine stood still": lambda: with_(
        stopped(0), troubles=[Trouble(kind="machine stalled", began=1.2, ended=6.9, pids=frozenset())]
    ),
    "killed by a trouble": lambda: killed("kill worker"),
    "dead long before the lease lapsed, its undertaker too": lambda: with_(
        leases_lapse(""), gone={11: 2.0}, deadly=[(11, 1.9)]
    ),
    "killed by its supervisor while stopped": lambda: killed("stop worker for long", since=-4.0),
    "killed by its own job": lambda: with_(killed("pause"), deadly=[(11, 1.4)]),
    "a whole tree killed": lambda: one().claimed(1).trouble("kill tree", 2, 2.1, 11).reaped(7.1, 7).ran(8, by=B),
    "released unstarted": lambda: one().claimed(1, run=False).refunded(2).ran(3),
    "released at the end of grace": released_late,
    "given back by the supervisor after a deploy": lambda: (
        one().claimed(1).trouble("deploy", 1.5, 6, 11).refunded(5, who="pgjobs undertaker").ran(6, by=B)
    ),
    "finished by the supervisor after a deploy, for it had returned": lambda: (
        one().claimed(1).trouble("deploy", 1.5, 6, 11).returned(2).ended(5, who="pgjobs undertaker")
    ),
    "the sixth release": lambda: with_(
        one().claimed(1).refunded(2, attempts_new=1, refunds_old=5).ran(3, by=B), gone={11: 2.5}
    ),
    "stuck, and recorded as timed out": lambda: stuck(True),
    "lapsed while the server was away": lambda: leases_lapse("server away"),
    "its effect": lambda: effect("done", 1),
    "no effect": lambda: effect("cancelled", 0),
    "keys in turn": lambda: keyed(2.5),
    "a wish that came true": lambda: with_(keyed(2.5), wishes=[Wish(batch=1, kind="keyed", key="k", at=1.5)]),
    "a wish that was rolled back": lambda: with_(wished(1.5), wishes=[Wish(batch=2, kind="keyed", key="k", at=1.5)]),
    "a wish whose job was cancelled": lambda: (
        wished(1.5).enqueued(2, 2, key="k", kind="keyed").ended(3, 2, new="cancelled", who="chaos operator")
    ),
    "a suspect alone": lambda: suspect(4),
    "not a claim of that queue": lambda: with_(one().ran(5), pauses=[("q", 1.0, 9.0)]),
    "claimed after the pause": lambda: with_(Story().enqueued(queue="q").ran(10), pauses=[("q", 1.0, 9.0)]),
}


@pytest.mark.parametrize(("rule", "how"), [(rule, how) for rule, cases in BROKEN.items() for how in cases])
def test_a_broken_history_is_found(rule: str, how: str) -> None:
    found = check(BROKEN[rule][how]())
    assert rule in {violation.rule for violation in found}, found


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_passes(name: str) -> None:
    assert check(GOOD[name]()) == []


def test_each_rule_has_a_history_that_breaks_it() -> None:
    assert {rule.__name__ for rule in RULES} == set(BROKEN)


def test_the_story_of_a_broken_job_is_told() -> None:
    story = stopped(2.5)
    told = "\n".join(failures(story, check(story)))
    for part in (
        "BROKEN: no two runs at once: 1",
        "run begins in process 11",
        "stop worker for long",
        "by pgjobs keeper",
    ):
        assert part in told


def test_rescues_are_measured_from_the_kill() -> None:
    [(due, again)] = rescues(killed("kill worker"), "kill worker")
    assert (due, again) == pytest.approx((0.5, 1.0))
    assert list(rescues(killed("kill worker", run_after=2.2), "kill worker")) == [], "it had to wait: that is backoff"


def test_a_seed_makes_one_plan() -> None:
    assert make_plan(7, 60) == make_plan(7, 60) != make_plan(8, 60)


@pytest.mark.parametrize("seconds", [10, 300])
def test_a_plan_has_every_kind_of_trouble(seconds: float) -> None:
    plan = make_plan(1, seconds)
    assert {card.kind for card in plan} == set(DECK) or seconds < 20
    assert len({card.kind for card in plan}) >= len(DECK) - 5
    assert all(0 < card.at < seconds for card in plan)

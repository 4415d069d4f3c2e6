"""The moves that a person may ask for: each is a verb of the store, on many ids at once, told and logged with counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import connections
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, ngettext_lazy

from .. import store
from ..conf import get_settings
from ..models import Job
from ..store.calling import Connection

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise as Lazy

MOST = 10_000
"""Jobs that one request moves; a larger selection is moved by running the action again."""

LOGGED_EACH = 300
"""Up to so many moved jobs get a log entry each; more share one."""

Outcomes = Mapping[int, tuple[str, int | None]]
"""What the verb said of each id, and which job holds the key where it is in use."""


@dataclass(frozen=True, slots=True)
class Move:
    """A button. ``statuses`` are those that it makes sense for; ``perform`` takes ids, who asks, and whether in bulk."""

    name: str
    permission: str
    label: Lazy
    hint: Lazy
    statuses: frozenset[str]
    perform: Callable[[Connection, Sequence[int], str, bool], Outcomes]
    logged: str
    flag: int = CHANGE


def _retry_now(connection: Connection, ids: Sequence[int], by: str, bulk: bool) -> Outcomes:
    """Finished jobs are requeued; pending ones that wait for their next attempt are brought forward.

    In bulk one that waits for its *first* run keeps its time: next week's digest must not go out because somebody
    selected everything. On its own page a job is brought forward all the same.
    """
    outcomes = dict(store.requeue(connection, ids))
    live = [id_ for id_, (outcome, _holder) in outcomes.items() if outcome == "not_final"]
    waiting = Job.objects.using(connection.alias).filter(pk__in=live, status="pending", run_after__gt=Now())
    early = list(waiting.values_list("pk", "attempts", Now()))
    outcomes |= {pk: ("first_run", None) for pk, _attempts, _now in early}
    if chosen := [pk for pk, attempts, _now in early if attempts or not bulk]:
        moved = store.reschedule(connection, chosen, run_after=early[0][2])
        outcomes |= {pk: (outcome, None) for pk, outcome in moved.items()}
    return outcomes


def _plain(verb: Callable[..., Mapping[int, str]]) -> Callable[[Connection, Sequence[int], str, bool], Outcomes]:
    def perform(connection: Connection, ids: Sequence[int], by: str, bulk: bool) -> Outcomes:
        return {id_: (outcome, None) for id_, outcome in verb(connection, ids, by=by).items()}

    return perform


def _prune(connection: Connection, ids: Sequence[int], by: str, bulk: bool) -> Outcomes:
    return {id_: (outcome, None) for id_, outcome in store.prune(connection, ids).items()}


FINISHED = frozenset({"done", "failed", "dead", "cancelled"})

MOVES = {
    move.name: move
    for move in (
        Move(
            "retry_now",
            "retry_job",
            gettext_lazy("Retry now"),
            gettext_lazy("Same job, history kept, one more attempt at least."),
            FINISHED | {"pending"},
            _retry_now,
            "Retried.",
        ),
        Move(
            "cancel",
            "cancel_job",
            gettext_lazy("Cancel"),
            gettext_lazy("A waiting job ends at once; a running one is asked to stop."),
            frozenset({"pending", "reserved"}),
            _plain(store.cancel),
            "Cancelled, or asked to stop.",
        ),
        Move(
            "bury",
            "cancel_job",
            gettext_lazy("Move to dead letters"),
            gettext_lazy("It does not run again until somebody retries it."),
            frozenset({"pending"}),
            _plain(store.bury_pending),
            "Moved to the dead letters.",
        ),
        Move(
            "prune",
            "delete_job",
            gettext_lazy("Delete finished"),
            gettext_lazy("The job and its history are gone for good."),
            FINISHED,
            _prune,
            "Deleted.",
            DELETION,
        ),
    )
}

MOVED: dict[str, Any] = {
    "requeued": ngettext_lazy("%(n)s job retried: it is due now", "%(n)s jobs retried: they are due now", "count"),
    "rescheduled": ngettext_lazy("%(n)s waiting job brought forward", "%(n)s waiting jobs brought forward", "count"),
    "cancelled": ngettext_lazy("%(n)s job cancelled", "%(n)s jobs cancelled", "count"),
    "requested": ngettext_lazy("%(n)s running job asked to stop", "%(n)s running jobs asked to stop", "count"),
    "buried": ngettext_lazy("%(n)s job moved to the dead letters", "%(n)s jobs moved to the dead letters", "count"),
    "pruned": ngettext_lazy("%(n)s job deleted", "%(n)s jobs deleted", "count"),
}

SKIPPED: dict[str, Any] = {
    "key_in_use": gettext_lazy("%(n)s whose key another live job holds (%(holders)s)"),
    "not_final": gettext_lazy("%(n)s not finished yet"),
    "first_run": gettext_lazy("%(n)s that wait for their first run (open one to run it now)"),
    "spared": gettext_lazy("%(n)s done already (filter for done ones to run them again)"),
    "not_live": gettext_lazy("%(n)s already finished"),
    "not_pending": gettext_lazy("%(n)s not waiting"),
    "busy": gettext_lazy("%(n)s busy: somebody else is changing them"),
    "missing": gettext_lazy("%(n)s gone meanwhile"),
}


@dataclass(frozen=True, slots=True)
class Report:
    """What a move did: a sentence for the reader, and whether all, some or none moved."""

    outcomes: Outcomes
    text: str
    moved: int
    skipped: int


def run(
    move: Move, ids: Iterable[int], user: Any, *, bulk: bool = True, gone: int = 0, spared: Iterable[int] = ()
) -> Report:
    """Make a move as ``user`` and log it. The verb commits batch by batch, unless the caller has a transaction open.

    ``gone`` counts jobs that were asked for and are not there any more; ``spared`` are done ones that are left alone.
    """
    connection = connections[get_settings().DATABASE]
    chosen = list(ids)
    kinds = dict(Job.objects.using(connection.alias).filter(pk__in=chosen).values_list("pk", "kind"))
    outcomes = move.perform(connection, chosen, user.get_username(), bulk) if chosen else {}
    outcomes = {**outcomes, **dict.fromkeys(spared, ("spared", None))}
    moved = [id_ for id_, (outcome, _holder) in outcomes.items() if outcome in MOVED]
    _log(move, moved, kinds, user)
    return Report(outcomes, sentence(outcomes, gone), len(moved), len(outcomes) - len(moved) + gone)


def sentence(outcomes: Outcomes, gone: int = 0) -> str:
    """The counts of a move: what moved, what was skipped, and why."""
    counts = Counter(outcome for outcome, _holder in outcomes.values())
    counts["missing"] += gone
    moved = [(text % {"n": f"{counts[name]:,}", "count": counts[name]}) for name, text in MOVED.items() if counts[name]]
    skipped = [
        str(text % {"n": f"{counts[name]:,}", "holders": _holders(outcomes)})
        for name, text in SKIPPED.items()
        if counts[name]
    ]
    said = "; ".join(str(text) for text in moved) or _("Nothing changed")
    if not skipped:
        return f"{said}."
    total = sum(counts[name] for name in SKIPPED)
    left = ngettext("%(n)s skipped", "%(n)s skipped", total) % {"n": f"{total:,}"}
    return f"{said}. {left}: {'; '.join(skipped)}."


def _holders(outcomes: Outcomes, most: int = 5) -> str:
    pairs = [(id_, holder) for id_, (outcome, holder) in sorted(outcomes.items()) if outcome == "key_in_use"]
    told = [
        _("#%(id)d: in use by #%(holder)d") % {"id": id_, "holder": holder} if holder else f"#{id_}"
        for id_, holder in pairs[:most]
    ]
    return ", ".join(told) + (", …" if len(pairs) > most else "")


def _log(move: Move, moved: Sequence[int], kinds: Mapping[int, str], user: Any) -> None:
    if not moved:
        return
    if len(moved) <= LOGGED_EACH:
        jobs: Any = [Job(pk=id_, kind=kinds.get(id_, "")) for id_ in moved]
        LogEntry.objects.log_actions(user.pk, jobs, move.flag, change_message=move.logged)
        return
    LogEntry.objects.create(
        user_id=user.pk,
        content_type=ContentType.objects.get_for_model(Job),
        object_id=None,
        object_repr=f"{len(moved):,} jobs, #{min(moved)} to #{max(moved)}",
        action_flag=move.flag,
        change_message=f"{move.logged} {len(moved):,} jobs at once.",
    )

"""Which handlers exist, with what options, and whether a payload fits one."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..backoff import Backoff
from ..exceptions import ConfigurationError, PayloadTypeError, seconds
from ..payload import check_text
from .recurring import Schedule, check_schedules

UNSET: Any = type("Unset", (), {"__repr__": lambda self: "UNSET", "__bool__": lambda self: False})()
"""An option that was not given."""


@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    """A registered function: how jobs of its kind are stored by default, and how they are run."""

    kind: str
    function: Callable[..., Any]
    aliases: tuple[str, ...]
    queue: str
    priority: int
    max_attempts: int | None
    timeout: float | None
    retry_on: tuple[type[BaseException], ...] | None
    discard_on: tuple[type[BaseException], ...]
    backoff: Backoff | None
    atomic: bool
    upgrade: Callable[[dict[str, Any]], Mapping[str, Any]] | None
    sensitive: tuple[str, ...]
    takes_ctx: bool
    is_async: bool
    parameters: tuple[str, ...]
    required: frozenset[str]
    takes_any: bool
    allowed: frozenset[str]
    """Of ``parameters``."""
    schedules: tuple[Schedule, ...] = ()

    @property
    def where(self) -> str:
        """The function's full name, for messages."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments of a call as the payload, positional ones bound to their names; raises PayloadTypeError."""
        if args:
            if len(args) > len(self.parameters):
                raise PayloadTypeError(
                    f"{self.kind}() takes {len(self.parameters)} arguments ({', '.join(self.parameters)}); "
                    f"got {len(args)} positional ones."
                )
            for name, value in zip(self.parameters, args, strict=False):
                if name in kwargs:
                    raise PayloadTypeError(f"{self.kind}() got the argument '{name}' twice.")
                kwargs = {name: value, **kwargs}
        self.check(kwargs)
        return kwargs

    def check(self, payload: Mapping[str, Any]) -> None:
        """Raise PayloadTypeError, naming the argument, when the payload does not fit the function's signature."""
        given = payload.keys()
        if given >= self.required and (self.takes_any or given <= self.allowed):
            return  # as nearly all do
        if not self.takes_any:
            for name in payload:
                if name not in self.parameters:
                    close = difflib.get_close_matches(str(name), self.parameters, n=1)
                    hint = (
                        f"did you mean '{close[0]}'?" if close else f"it takes {', '.join(self.parameters) or 'none'}."
                    )
                    raise PayloadTypeError(f"payload.{name}: {self.kind}() has no argument '{name}'; {hint}")
        if missing := [name for name in self.parameters if name in self.required and name not in payload]:
            names = ", ".join(map(repr, missing))
            raise PayloadTypeError(
                f"payload.{missing[0]}: {self.kind}() needs the argument{'s' * (len(missing) > 1)} {names}."
            )


def make_handler(function: Callable[..., Any], options: Mapping[str, Any]) -> Handler:
    """A handler of a function and the options of ``@job``; raises ConfigurationError for what cannot work."""
    if isinstance(function, (staticmethod, classmethod)) or not inspect.isroutine(function):
        raise ConfigurationError(f"@job takes a function, not {function!r}. Its options have names: @job(queue=…).")
    where = f"{function.__module__}.{function.__qualname__}"
    signature = inspect.signature(function)
    names = list(signature.parameters.values())
    takes_ctx = bool(names) and names[0].name == "ctx"
    names = names[1:] if takes_ctx else names
    takes_any = len(names) == 1 and names[0].kind is inspect.Parameter.VAR_KEYWORD
    for p in names:
        if getattr(p.annotation, "__name__", str(p.annotation)).rpartition(".")[2] == "JobContext":
            raise ConfigurationError(
                f"@job on {where}: the parameter {p.name!r} cannot take the JobContext; only a first one that is called "
                "'ctx' does."
            )
        if p.kind is p.VAR_POSITIONAL or p.kind is p.POSITIONAL_ONLY or (p.kind is p.VAR_KEYWORD and not takes_any):
            raise ConfigurationError(
                f"@job on {where}: the parameter {str(p).split(':')[0]!r} cannot be filled from a payload, a JSON object. "
                "Use named parameters, or a lone **kwargs."
            )
    is_async = inspect.iscoroutinefunction(function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(f"@job on {where}: a generator never runs by being called; make it a plain function.")
    if is_async and options["atomic"]:
        raise ConfigurationError(
            f"@job on {where}: atomic=True needs a plain function; Django has no async transactions."
        )
    try:
        handler = Handler(
            kind=check_text(function.__name__ if options["kind"] is None else options["kind"], "kind", 255),
            function=function,
            aliases=tuple(check_text(a, "aliases", 255) for a in options["aliases"]),
            queue=check_text(options["queue"], "queue", 255),
            priority=check_number(options["priority"], "priority", -100, 100),
            max_attempts=None if options["max_attempts"] is None else check_attempts(options["max_attempts"]),
            timeout=check_timeout(options["timeout"]),
            retry_on=None if options["retry_on"] is None else _classes(options["retry_on"], "retry_on"),
            discard_on=_classes(options["discard_on"], "discard_on"),
            backoff=_callable(options["backoff"], "backoff"),
            atomic=bool(options["atomic"]),
            upgrade=_callable(options["upgrade"], "upgrade"),
            sensitive=tuple(str(name) for name in options["sensitive"]),
            takes_ctx=takes_ctx,
            is_async=is_async,
            parameters=() if takes_any else tuple(p.name for p in names),
            required=frozenset(p.name for p in names if p.default is p.empty and not takes_any),
            takes_any=takes_any,
            allowed=frozenset(p.name for p in names),
        )
        schedules = check_schedules(handler.kind, options.get("schedules", ()), handler.check)
        return replace(handler, schedules=schedules)
    except ValueError as e:
        raise ConfigurationError(f"@job on {where}: {e}") from None


def check_number(value: object, name: str, least: int, most: int) -> int:
    """A whole number of a range; raises ValueError that names the argument and the range."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} has to be a whole number from {least:,} to {most:,}, not {value!r}.")
    return int(value)


def check_attempts(value: object) -> int:
    """``max_attempts``: at least one, the first run counts."""
    return check_number(value, "max_attempts", 1, 1_000_000)


def check_timeout(value: Any) -> float | None:
    """``timeout`` in seconds, above zero; None is no limit, UNSET stays as it is."""
    if value is UNSET or value is None:
        return value
    if not (limit := seconds(value, "timeout")):
        raise ValueError("timeout has to be above zero; None means no limit.")
    return limit


def _classes(value: Any, name: str) -> tuple[type[BaseException], ...]:
    found = (
        value if isinstance(value, tuple) else tuple(value) if isinstance(value, (list, set, frozenset)) else (value,)
    )
    for one in found:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise ValueError(f"{name} takes exception classes, not {one!r}.")
    return found


def _callable(value: Any, name: str) -> Any:
    if value is not None and not callable(value):
        raise ValueError(f"{name} takes a callable, not {value!r}.")
    return value


class Registry:
    """Handlers by kind and alias."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def add(self, handler: Handler) -> None:
        """Register; raises ConfigurationError that names both when another handler has the kind or an alias."""
        for name in (handler.kind, *handler.aliases):
            other = self._handlers.get(name)
            if other is not None and other.where != handler.where:  # the same one again is a module that was reloaded
                raise ConfigurationError(
                    f"two handlers are called {name!r}: {other.where} and {handler.where}. "
                    "Give one another name with @job(kind=…)."
                )
        for schedule in handler.schedules:
            for other in self.handlers():
                if other.where != handler.where and any(schedule.name == one.name for one in other.schedules):
                    raise ConfigurationError(
                        f"two schedules are called {schedule.name!r}, of {other.where} and of {handler.where}. "
                        "Give one another name with schedule_name=… or Schedule(name=…)."
                    )
        for name in (handler.kind, *handler.aliases):
            self._handlers[name] = handler

    def remove(self, handler: Handler) -> None:
        """Forget a handler, for tests."""
        self._handlers = {name: h for name, h in self._handlers.items() if h is not handler}

    def find(self, kind: str) -> Handler | None:
        """The handler of a kind or of an alias of it."""
        return self._handlers.get(kind)

    def kinds(self, *, is_async: bool | None = None) -> list[str]:
        """Every kind and alias that can be run here, sorted; only the ``async def`` ones, or only the others."""
        return sorted(name for name, h in self._handlers.items() if is_async is None or h.is_async is is_async)

    def handlers(self) -> list[Handler]:
        """Every handler once, by kind."""
        return sorted(set(self._handlers.values()), key=lambda h: h.kind)

    def schedules(self) -> dict[str, tuple[Handler, Schedule]]:
        """Every declared schedule by name, with its handler."""
        return {str(one.name): (handler, one) for handler in self.handlers() for one in handler.schedules}


registry = Registry()

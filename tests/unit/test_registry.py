"""Handlers: what is registered, refused, and found."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

from pgjobs import Exponential, Fixed, JobContext, job
from pgjobs.api.registry import UNSET, registry
from pgjobs.exceptions import ConfigurationError, PayloadTypeError
from tests.testapp.jobs import add, echo, scripted


@pytest.fixture(autouse=True)
def _registry_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))


# What @job makes -----------------------------------------------------------------------------------------------------


def test_a_handler_can_simply_be_called_and_looks_like_its_function() -> None:
    assert add(1) == 2
    assert add(1, b=5) == 6
    assert (add.__name__, add.__module__) == ("add", "tests.testapp.jobs")
    assert add.__doc__ == "A plain function with options of its own."
    assert repr(add) == "<job 'add': tests.testapp.jobs.add>"


def test_with_and_without_options_and_parentheses() -> None:
    @job
    def bare() -> None: ...

    @job()
    def empty() -> None: ...

    @job(kind="third.name")
    def named() -> None: ...

    assert [handler.handler.kind for handler in (bare, empty, named)] == ["bare", "empty", "third.name"]
    assert registry.find("third.name") is named.handler
    assert registry.find("named") is None


def test_options_left_out_are_left_to_the_settings() -> None:
    handler = scripted.handler
    assert (handler.queue, handler.priority, handler.max_attempts) == ("default", 0, None)
    assert handler.timeout is UNSET
    assert (handler.retry_on, handler.discard_on, handler.backoff, handler.atomic) == (None, (), None, False)


def test_a_first_parameter_named_ctx_is_no_argument_of_the_payload() -> None:
    assert scripted.handler.takes_ctx
    assert scripted.handler.parameters == ("steps", "then")
    assert not add.handler.takes_ctx

    @job
    def second(a: int, ctx: int) -> None: ...

    assert second.handler.parameters == ("a", "ctx")

    @job
    def anything(ctx: JobContext, **more: Any) -> None: ...

    assert (anything.handler.takes_any, anything.handler.takes_ctx) == (True, True)


def test_aliases_are_found_and_listed_once() -> None:
    assert registry.find("plus") is registry.find("add") is add.handler
    assert {"plus", "add"} <= set(registry.kinds())
    assert [h.kind for h in registry.handlers()].count("add") == 1

    @job(aliases="one_text")
    def text() -> None: ...

    assert registry.find("one_text") is text.handler


def test_decorated_functions_keep_their_signature() -> None:
    def decorator(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @job
    @decorator
    def wrapped(a: int, b: int = 2) -> None: ...

    assert wrapped.handler.parameters == ("a", "b")


# What is refused -----------------------------------------------------------------------------------------------------


def positional(a: int, /) -> None: ...
def many(*args: int) -> None: ...
def mixed(a: int, **more: int) -> None: ...
def context(context: JobContext, a: int) -> None: ...
def late_context(a: int, ctx: JobContext) -> None: ...
def generator() -> Iterator[int]:
    yield 1


async def agenerator() -> Any:
    yield 1


async def coroutine() -> None: ...
def plain() -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (positional, {}, r"the parameter 'a' cannot be filled from a payload"),
        (many, {}, r"the parameter '\*args' cannot be filled"),
        (mixed, {}, r"the parameter '\*\*more' cannot be filled"),
        (context, {}, "the parameter 'context' cannot take the JobContext; only a first one that is called 'ctx' does"),
        (late_context, {}, "the parameter 'ctx' cannot take the JobContext"),
        ("mail", {}, r"@job takes a function, not 'mail'. Its options have names: @job\(queue=…\)"),
        (generator, {}, "a generator never runs by being called"),
        (agenerator, {}, "a generator never runs by being called"),
        (coroutine, {"atomic": True}, "atomic=True needs a plain function"),
        (classmethod(plain), {}, "@job takes a function"),
        (staticmethod(plain), {}, "@job takes a function"),
        (int, {}, "@job takes a function"),
        (functools.partial(plain), {}, "@job takes a function"),
        (plain, {"kind": ""}, "plain: kind has to have 1 to 255 bytes"),
        (plain, {"kind": "x" * 256}, "kind has to have 1 to 255 bytes; it has 256"),
        (plain, {"kind": "a\x00"}, "kind holds a NUL"),
        (plain, {"kind": 5}, "kind has to be text, not int"),
        (plain, {"aliases": ["ok", ""]}, "aliases has to have 1 to 255 bytes"),
        (plain, {"queue": ""}, "queue has to have 1 to 255 bytes"),
        (plain, {"priority": 101}, "priority has to be a whole number from -100 to 100, not 101"),
        (plain, {"priority": True}, "priority has to be a whole number"),
        (plain, {"priority": 1.5}, "priority has to be a whole number"),
        (plain, {"max_attempts": 0}, "max_attempts has to be a whole number from 1 to 1,000,000, not 0"),
        (plain, {"timeout": 0}, "timeout has to be above zero; None means no limit"),
        (plain, {"timeout": -1}, "timeout takes a duration from 0"),
        (plain, {"timeout": "5"}, "timeout takes seconds or a timedelta"),
        (plain, {"retry_on": (ValueError, 5)}, "retry_on takes exception classes, not 5"),
        (plain, {"discard_on": "ValueError"}, "discard_on takes exception classes"),
        (plain, {"backoff": 5}, "backoff takes a callable, not 5"),
        (plain, {"upgrade": {}}, "upgrade takes a callable"),
    ],
)
def test_what_cannot_work_is_refused_at_registration(function: Any, options: dict[str, Any], message: str) -> None:
    before = registry.kinds()
    with pytest.raises(ConfigurationError, match=message):
        job(**options)(function)
    assert registry.kinds() == before


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(TypeError, match="cue"):
        job(cue="mail")(plain)  # type: ignore[call-overload]


@pytest.mark.parametrize("options", [{"kind": "add"}, {"kind": "plus"}, {"aliases": ("add",)}, {"aliases": ("plus",)}])
def test_two_handlers_of_one_name_are_refused_naming_both(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        job(**options)(plain)
    message = str(caught.value)
    assert "tests.testapp.jobs.add" in message
    assert f"{__name__}.plain" in message
    assert registry.find("add") is add.handler
    assert registry.find("plain") is None, "nothing is registered by half"


def test_the_same_function_again_is_a_module_that_was_reloaded() -> None:
    first = job(plain)
    second = job(queue="new")(plain)
    assert registry.find("plain") is second.handler is not first.handler


def test_backoffs_are_callables() -> None:
    for backoff in (Exponential(), Fixed(1), lambda attempt: 5.0):
        assert job(backoff=backoff)(plain).handler.backoff is backoff


# Does a payload fit? -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({}, r"^payload\.a: add\(\) needs the argument 'a'\.$"),
        ({"b": 1}, r"^payload\.a: add\(\) needs the argument 'a'"),
        ({"a": 1, "c": 1}, r"^payload\.c: add\(\) has no argument 'c'; it takes a, b\.$"),
        ({"a": 1, "A": 1}, r"^payload\.A: add\(\) has no argument 'A'"),
        ({1: 1, "a": 1}, r"has no argument '1'"),
    ],
)
def test_arguments_that_do_not_fit_are_named(payload: dict[Any, Any], message: str) -> None:
    with pytest.raises(PayloadTypeError, match=message) as caught:
        add.handler.check(payload)
    assert isinstance(caught.value, TypeError)


def test_did_you_mean() -> None:
    @job
    def mail(order_id: int) -> None: ...

    with pytest.raises(PayloadTypeError, match=r"payload\.ordr_id: .*did you mean 'order_id'\?"):
        mail.handler.check({"ordr_id": 1})


def test_ctx_cannot_be_passed() -> None:
    with pytest.raises(PayloadTypeError, match="has no argument 'ctx'"):
        scripted.handler.check({"ctx": 1})


def test_positional_arguments_are_bound_to_their_names() -> None:
    assert add.handler.bind((1,), {}) == {"a": 1}
    assert add.handler.bind((1, 2), {}) == {"a": 1, "b": 2}
    assert add.handler.bind((1,), {"b": 2}) == {"a": 1, "b": 2}
    assert scripted.handler.bind(([],), {}) == {"steps": []}
    assert echo.handler.bind((), {"anything": 1}) == {"anything": 1}


@pytest.mark.parametrize(
    ("handler", "args", "kwargs", "message"),
    [
        (add, (1, 2, 3), {}, r"add\(\) takes 2 arguments \(a, b\); got 3 positional ones"),
        (add, (1,), {"a": 2}, r"add\(\) got the argument 'a' twice"),
        (echo, (1,), {}, r"echo\(\) takes 0 arguments"),
    ],
)
def test_surplus_positional_arguments_are_refused(handler: Any, args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(PayloadTypeError, match=message):
        handler.handler.bind(args, kwargs)

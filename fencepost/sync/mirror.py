"""Makes blocking classes from async ones: each gets every public name automatically.

A coroutine function becomes a function that waits. A plain function runs in the trio thread, because other threads must
not touch the client. Their results are mirrored in turn if they are async contexts, async iterators, or instances of
classes that have a mirror.
"""

import functools
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext
from types import GenericAlias, TracebackType
from typing import Any, ClassVar, Self

import trio

from fencepost.sync.loop import Loop

_MIRRORS: dict[type, type["Mirror"]] = {}
_END = object()


class Mirror:
    """A blocking view of an object of the trio thread."""

    _of: ClassVar[type]

    def __init__(self, loop: Loop, inner: Any) -> None:
        self._loop = loop
        self._inner = inner
        self._entered: Any = None
        self._ending = False
        """Whether it is being closed."""
        self._maker: Mirror | None = None
        """The mirror that returned it."""
        loop.views[id(inner)] = self

    def __repr__(self) -> str:
        return f"<fencepost.sync {self._inner!r}>"

    def __init_subclass__(cls, *, of: type | None = None) -> None:
        """`of` is the async class; this class gets its public names, except those that it defines itself."""
        super().__init_subclass__()
        if of is None:
            return
        cls._of = of
        _MIRRORS[of] = cls
        if hasattr(of, "__class_getitem__"):
            cls.__class_getitem__ = classmethod(GenericAlias)  # type: ignore[attr-defined]  # for annotations
        for name in dir(of):
            if not name.startswith("_") and not hasattr(cls, name):
                setattr(cls, name, _mirrored(name, inspect.getattr_static(of, name)))
        if hasattr(of, "__aenter__") and not hasattr(cls, "__enter__"):
            cls.__enter__ = _enter  # type: ignore[attr-defined]
            cls.__exit__ = _exit  # type: ignore[attr-defined]
        if hasattr(of, "__aiter__") and not hasattr(cls, "__iter__"):
            cls.__iter__ = _iterate  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        """An attribute that the async object has, and its class has not."""
        if name.startswith("_"):
            raise AttributeError(name)
        if callable(getattr(self._inner, name)):
            return functools.partial(self._call, name)
        return self._look(name)

    def _call(self, name: str, *args: Any, patient: bool = False, **more: Any) -> Any:
        """Call the method of that name in the trio thread; mirrors among its arguments are unwrapped."""
        args = tuple(plain(one) for one in args)
        more = {key: self._given(key, one) for key, one in more.items()}

        async def run() -> Any:
            made = getattr(self._inner, name)(*args, **more)
            return await made if inspect.iscoroutine(made) else made

        return view(self._loop, self._loop.call(run, patient=patient), self)

    def _given(self, name: str, value: Any) -> Any:
        """An argument for the async side; a callback that is a plain function becomes an async one."""
        if name.startswith("on_") and callable(value) and not inspect.iscoroutinefunction(value):
            return Callback(self._loop, value)
        return plain(value)

    def _look(self, name: str) -> Any:
        """An attribute, read in the trio thread as long as that runs."""

        async def run() -> Any:
            return getattr(self._inner, name)

        return view(self._loop, self._loop.call(run) if self._loop.is_running else getattr(self._inner, name))

    def _settle(self) -> None:
        """Pass on the records that are still on this side, before the block ends."""

    def _is_open(self, made: Any, is_open: bool) -> None:
        """A mirror that this one returned was entered, or left."""

    def _reading(self) -> AbstractContextManager[Any]:
        """A context around each step of an iterator of this mirror."""
        return nullcontext()


def _enter(self: Mirror) -> Any:
    """Open it. Raises the error of opening it; after Ctrl-C it is closed again."""
    done: list[Any] = []

    async def enter() -> None:
        done.append(await self._inner.__aenter__())

    try:
        self._ending = False
        self._loop.call(enter)
        self._entered = self if done[0] is self._inner else view(self._loop, done[0])
        if self._maker is not None:
            self._maker._is_open(self._entered, True)
    except BaseException as error:
        if done:  # it is open, and the program will not close it
            _leave(self, type(error), error, error.__traceback__)
        raise
    return self._entered


def _exit(
    self: Mirror, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    """Close it; an exception of the block, Ctrl-C included, is passed to the async one."""
    try:
        if error is None and isinstance(self._entered, Mirror):
            self._entered._settle()
        _leave(self, kind, error, trace)
    except BaseException as wrong:
        if not self._ending:  # the last records were wrong, or Ctrl-C came before the end had begun
            _leave(self, type(wrong), wrong, wrong.__traceback__)
        raise
    finally:
        if self._maker is not None:
            self._maker._is_open(self._entered, False)


def _leave(
    self: Mirror, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    async def leave() -> None:
        self._ending = True
        await self._inner.__aexit__(kind, error, trace)

    self._loop.call(leave)


def _iterate(self: Mirror) -> "Stream":
    """The items, one after the other."""

    async def begin() -> AsyncIterator[Any]:
        begun: AsyncIterator[Any] = self._inner.__aiter__()
        return begun

    return Stream(self._loop, self._loop.call(begin), self)


class Stream(Mirror):
    """An async iterator, blocking. A deadline that ends a wait loses nothing: call `next` again."""

    def __init__(self, loop: Loop, inner: Any, owner: Mirror | None = None) -> None:
        super().__init__(loop, inner)
        self._owner = owner

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """Wait for the next item."""
        with nullcontext() if self._owner is None else self._owner._reading():
            found = self._loop.call(self._step, patient=True)
        if found is _END:
            raise StopIteration
        return view(self._loop, found)

    async def _step(self) -> Any:
        try:
            return await self._inner.__anext__()
        except StopAsyncIteration:
            return _END


class Callback:
    """A callback that is a plain function: it runs in its own thread, so it may call the client.

    The caller waits meanwhile, and so does the thread that uses the consumer: so the callback may use it as well.
    """

    def __init__(self, loop: Loop, function: Callable[..., Any]) -> None:
        self._loop = loop
        self._function = function

    async def __call__(self, *args: Any) -> None:
        """Call it with the program's views of the arguments. Raises what it raises."""
        await trio.to_thread.run_sync(self._run, tuple(view(self._loop, one) for one in args))

    def _run(self, args: tuple[Any, ...]) -> None:
        self._loop.local.called_back = True
        try:
            self._function(*args)
        finally:
            self._loop.local.called_back = False


class Opened(Mirror):
    """A mirror that a program opens with `with`."""

    # Not wrapped in functions: Ctrl-C between two calls would leave the object open.
    __enter__ = _enter
    __exit__ = _exit


def plain(value: Any) -> Any:
    """The value for the async side: the object behind a mirror."""
    return value._inner if isinstance(value, Mirror) else value


def view(loop: Loop, value: Any, owner: Mirror | None = None) -> Any:
    """The program's view of a value from the trio thread."""
    known = loop.views.get(id(value))
    if known is not None and known._inner is value:
        return known
    for kind in type(value).__mro__:
        if kind in _MIRRORS:
            mirror = _MIRRORS[kind]
            if issubclass(mirror, Stream):
                return mirror(loop, value, owner)
            made = mirror(loop, value)
            made._maker = owner
            return made
    if hasattr(value, "__anext__"):
        return Stream(loop, value, owner)
    return Opened(loop, value) if hasattr(value, "__aenter__") else value


def _mirrored(name: str, found: Any) -> Any:
    """The blocking form of one attribute of an async class."""
    if isinstance(found, property | functools.cached_property):
        return property(lambda self: self._look(name), doc=found.__doc__)
    if isinstance(found, classmethod | staticmethod) or not callable(found):
        return found

    @functools.wraps(found)
    def method(self: Mirror, *args: Any, **more: Any) -> Any:
        return self._call(name, *args, **more)

    return method

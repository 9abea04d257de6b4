"""Dataclasses that are quickly made, and properties that are quickly found: the compiler has many.

`dataclasses.dataclass(frozen=True)` compiles the text of six methods for each class, 0.4 ms. Here
the constructor, `__eq__`, `__hash__` and `__repr__` are made when they are called for the first
time, most of them never. That nobody assigns to a field is left to type checkers, for whom this is
`dataclasses.dataclass`; so constructors are faster too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

# The argument for a field whose value a function makes for each instance.
_MADE = object()

_Class = TypeVar("_Class", bound=type)
# The arguments of a method, its body, and the names that these use.
_Text: TypeAlias = tuple[str, str, dict[str, Any]]

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from functools import cached_property as cached_property
else:

    class cached_property:
        """`functools.cached_property` without a lock, which it has up to Python 3.11.

        Threads that ask at once may each compute the value, and all get equal ones.
        """

        def __init__(self, function: Callable[[Any], Any]) -> None:
            self._function, self._name = function, function.__name__
            self.__doc__ = function.__doc__

        def __get__(self, instance: Any, owner: type) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._function(instance)
            return value

    def dataclass(
        cls: _Class | None = None, /, *, frozen: bool = False, eq: bool = True, repr: bool = True
    ) -> _Class | Callable[[_Class], _Class]:
        """Decorate a class as `dataclasses.dataclass` does.

        `dataclasses.fields`, `replace` and `asdict` know the result. One that is not frozen has no
        hash, unless `eq` is False. Fields of `init=False` are left to the class.
        """

        def decorate(cls: _Class) -> _Class:
            made = dataclasses.dataclass(init=False, eq=False, repr=False)(cls)
            _define(made, "__init__", _constructor)
            if eq:
                _define(made, "__eq__", _equality)
                if frozen:
                    _define(made, "__hash__", _hash)
                else:
                    made.__hash__ = None
            if repr:
                _define(made, "__repr__", _representation)
            return made

        return decorate if cls is None else decorate(cls)


def _constructor(cls: type) -> _Text:
    arguments, lines, known = ["self"], [], {}
    for one in (one for one in dataclasses.fields(cls) if one.init):
        value = one.name
        if one.default is not dataclasses.MISSING:
            known[f"_{one.name}"] = one.default
            arguments.append(f"{one.name}=_{one.name}")
        elif one.default_factory is not dataclasses.MISSING:
            known |= {f"_{one.name}": one.default_factory, "_made": _MADE}
            arguments.append(f"{one.name}=_made")
            value = f"_{one.name}() if {one.name} is _made else {one.name}"
        else:
            arguments.append(one.name)
        lines.append(f"self.{one.name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    return ", ".join(arguments), "\n    ".join(lines) or "pass", known


def _equality(cls: type) -> _Text:
    """Instances of one class are compared field by field."""
    body = (
        "if other.__class__ is not self.__class__: return NotImplemented\n"
        f"    return {_compared('self', cls)} == {_compared('other', cls)}"
    )
    return "self, other", body, {}


def _hash(cls: type) -> _Text:
    return "self", f"return hash({_compared('self', cls)})", {}


def _representation(cls: type) -> _Text:
    names = [f.name for f in dataclasses.fields(cls) if f.repr]
    shown = ", ".join(f"{name}={{self.{name}!r}}" for name in names)
    return "self", f'return f"{{type(self).__qualname__}}({shown})"', {}


def _compared(owner: str, cls: type) -> str:
    return f"({''.join(f'{owner}.{f.name}, ' for f in dataclasses.fields(cls) if f.compare)})"


def _define(cls: type, name: str, write: Callable[[type], _Text]) -> None:
    """Give a class a method that it does not define itself; its text is compiled when called."""
    # A class that defines `__eq__` has None for `__hash__`.
    if cls.__dict__.get(name) is not None:
        return

    def first(*given: Any, **named: Any) -> Any:
        arguments, body, known = write(cls)
        exec(f"def {name}({arguments}):\n    {body}", known)
        method = known[name]
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)
        return method(*given, **named)

    first.__name__ = name
    first.__qualname__ = f"{cls.__qualname__}.{name}"
    setattr(cls, name, first)

"""Dataclasses that are quickly made: the compiler has 150 of them.

`dataclasses.dataclass(frozen=True)` compiles the text of six methods for each class, 0.4 ms. Here
the constructor is made at once, and `__eq__`, `__hash__` and `__repr__` when they are called for
the first time: 0.1 ms. That nobody assigns to a field is left to type checkers, for whom this is
`dataclasses.dataclass`; so constructors are faster too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

_Class = TypeVar("_Class", bound=type)

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        cls: _Class | None = None, /, *, frozen: bool = False, eq: bool = True, repr: bool = True
    ) -> _Class | Callable[[_Class], _Class]:
        """Decorate a class as `dataclasses.dataclass` does.

        `dataclasses.fields`, `replace` and `asdict` know the result. One that is not frozen has no
        hash, unless `eq` is False.
        """

        def decorate(cls: _Class) -> _Class:
            made = dataclasses.dataclass(eq=False, repr=False)(cls)
            if eq:
                names = [f.name for f in dataclasses.fields(made) if f.compare]
                _define(made, "__eq__", "self, other", _equality(names))
                if frozen:
                    _define(made, "__hash__", "self", f"return hash({_tuple('self', names)})")
                else:
                    made.__hash__ = None
            if repr:
                names = [f.name for f in dataclasses.fields(made) if f.repr]
                shown = ", ".join(f"{name}={{self.{name}!r}}" for name in names)
                text = f'return f"{{type(self).__qualname__}}({shown})"'
                _define(made, "__repr__", "self", text)
            return made

        return decorate if cls is None else decorate(cls)


def _equality(names: list[str]) -> str:
    """The body of `__eq__`: instances of one class are compared field by field."""
    return (
        "if other.__class__ is not self.__class__: return NotImplemented\n"
        f"    return {_tuple('self', names)} == {_tuple('other', names)}"
    )


def _tuple(owner: str, names: list[str]) -> str:
    return f"({''.join(f'{owner}.{name}, ' for name in names)})"


def _define(cls: type, name: str, arguments: str, body: str) -> None:
    """Give a class a method that it does not define itself; its text is compiled when called."""
    # A class that defines `__eq__` has None for `__hash__`.
    if cls.__dict__.get(name) is not None:
        return

    def first(*given: Any) -> Any:
        namespace: dict[str, Any] = {}
        exec(f"def {name}({arguments}):\n    {body}", namespace)
        method = namespace[name]
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)
        return method(*given)

    first.__name__ = name
    first.__qualname__ = f"{cls.__qualname__}.{name}"
    setattr(cls, name, first)

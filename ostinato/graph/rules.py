"""Tables of rules: what a floor of the compiler does with an operator, each declared once."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

R = TypeVar("R", bound=Callable[..., Any])


class Rules(dict[str, R]):
    """Rules by the operator of the standard domain that each is for.

    kind: the word for these rules in messages.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def register(self, *op_types: str) -> Callable[[R], R]:
        """Declare the rule of some operators; raises ValueError where one has a rule already."""

        def add(rule: R) -> R:
            for op_type in op_types:
                if op_type in self:
                    raise ValueError(f"{op_type} has a {self.kind} rule already")
                self[op_type] = rule
            return rule

        return add


def load_rules(package: str, path: Iterable[str]) -> None:
    """Import the modules of a package, which register their rules."""
    for module in pkgutil.iter_modules(path, f"{package}."):
        importlib.import_module(module.name)

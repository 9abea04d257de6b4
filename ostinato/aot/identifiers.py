"""Names of models, tensors and sizes as identifiers of C and C++."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from ostinato.errors import OptionError

_KEYWORDS = frozenset(
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t "
    "char32_t class co_await co_return co_yield compl concept const const_cast consteval constexpr "
    "constinit continue decltype default delete do double dynamic_cast else enum explicit export "
    "extern false float for friend goto if import inline int long module mutable namespace new "
    "noexcept not not_eq nullptr operator or or_eq private protected public register "
    "reinterpret_cast requires restrict return short signed sizeof static static_assert "
    "static_cast struct switch template this thread_local throw true try typedef typeid typename "
    "union unsigned using virtual void volatile wchar_t while xor xor_eq".split()
)
# Macros, some of them of compilers and Windows, that would replace the name of a parameter.
_MACROS = frozenset(
    "I NULL EOF NAN INFINITY BUFSIZ M_PI assert complex errno far huge imaginary interface linux "
    "max min near offsetof signals slots small stderr stdin stdout unix BOOL CONST DELETE ERROR "
    "FALSE IN INPUT INT OPTIONAL OUT TRUE VOID".split()
)
# Of the standard library's functions and types, those that a model may well be called.
_LIBRARY = frozenset(
    "abort abs acos asin atan atan2 atexit bsearch calloc cbrt ceil clock copysign cos cosh div "
    "double_t erf erfc exit exp exp2 expm1 fabs fdim float_t floor fma fmax fmin fmod free frexp "
    "getc gets hypot index isnan j0 j1 jn labs ldexp ldiv lgamma llabs log log10 log1p log2 logb "
    "main malloc memcmp memcpy memmove memset modf nan nearbyint pow printf putc puts qsort raise "
    "rand read realloc remainder remove remquo rename rewind rindex rint round scanf select "
    "signal sin sinh sleep sqrt srand stat strlen system tan tanh tgamma time trunc wait write y0 "
    "y1 yn".split()
)


def plain(text: str) -> str:
    """The text with `_` in place of whatever is no letter or digit of C."""
    found = re.sub(r"[^0-9A-Za-z]+", "_", text).strip("_") or "_"
    return f"n{found}" if found[0].isdigit() else found


def unique(names: Iterable[str], taken: Collection[str] = ()) -> list[str]:
    """An identifier for each name, all different, none of `taken`, no keyword and no macro."""
    used = {*_KEYWORDS, *_MACROS, *taken}
    result = []
    for name in map(plain, names):
        found, number = name, 2
        while found in used:
            found, number = (f"{name}_{number}", number + 1) if name in used else (name, number)
        used.add(found)
        result.append(found)
    return result


def model_identifier(name: str) -> str:
    """The prefix of a model's functions, made from the name of a file."""
    found = plain(name)
    is_free = found not in _KEYWORDS | _MACROS | _LIBRARY
    return found if is_free else f"{found}_model"


def checked_identifier(name: str) -> str:
    """`name` itself. Raises `OptionError` where C or C++ cannot use it."""
    if not re.fullmatch("[A-Za-z][0-9A-Za-z_]*", name):
        raise OptionError(f"name={name!r}: expected letters, digits and _, a letter first")
    if model_identifier(name) != name and name in _KEYWORDS | _MACROS | _LIBRARY:
        raise OptionError(f"name={name!r}: C has this name already; take {name}_model, for example")
    return name

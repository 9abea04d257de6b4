"""Names of models, tensors and sizes as identifiers of C and C++."""

from __future__ import annotations

import re
import unicodedata
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
    "typeof typeof_unqual union unsigned using virtual void volatile wchar_t while xor "
    "xor_eq".split()
)
# Types of the header, which a parameter of the same name would hide from those behind it.
_TYPES = frozenset(
    "int8_t int16_t int32_t int64_t size_t uint8_t uint16_t uint32_t uint64_t".split()
)
_TAKEN = _KEYWORDS | _TYPES
# Macros, some of them of compilers and Windows, that would replace the name of a parameter.
_MACROS = frozenset(
    "I NULL EOF NAN INFINITY BUFSIZ M_PI assert complex errno far huge i386 imaginary interface "
    "linux max min near offsetof signals slots small stderr stdin stdout unix BOOL CONST DELETE "
    "ERROR FALSE IN INPUT INT OPTIONAL OUT TRUE VOID".split()
)
# Names of the standard library's functions and types that a model may well have.
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
    """The text without accents, and with `_` for whatever else is no letter or digit of C."""
    base = re.sub(r"[\u0300-\u036f]", "", unicodedata.normalize("NFKD", text))
    found = re.sub(r"[^0-9A-Za-z]+", "_", base).strip("_") or "unnamed"
    return f"n{found}" if found[0].isdigit() else found


def unique(names: Iterable[str], taken: Collection[str] = ()) -> list[str]:
    """An identifier for each name, all different, none of `taken`, no keyword, type or macro."""
    return different(map(plain, names), (*_TAKEN, *_MACROS, *taken))


def different(names: Iterable[str], taken: Collection[str] = ()) -> list[str]:
    """The names, with a number behind those of `taken` and those that come again."""
    used = set(taken)
    result = []
    for name in names:
        found, number = name, 2
        while found in used:
            found, number = f"{name}_{number}", number + 1
        used.add(found)
        result.append(found)
    return result


def model_identifier(name: str) -> str:
    """The prefix of a model's functions, made from the name of a file."""
    found = plain(name)
    is_free = found not in _TAKEN | _MACROS | _LIBRARY
    return found if is_free else f"{found}_model"


def checked_identifier(name: str) -> str:
    """`name` itself. Raises `OptionError` where C or C++ cannot use it."""
    if not isinstance(name, str) or not re.fullmatch("[A-Za-z][0-9A-Za-z_]*", name):
        raise OptionError(f"name={name!r}: expected letters, digits and _, a letter first")
    if model_identifier(name) != name and name in _TAKEN | _MACROS | _LIBRARY:
        raise OptionError(f"name={name!r}: C has this name already; take {name}_model, for example")
    return name

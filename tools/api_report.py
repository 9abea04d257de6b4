"""Writes docs/api.md: every public name with its signature and its docstring.

python -m tools.api_report [--write docs/api.md]

Reads the source alone, so that parts need not be installed that a name of an extra imports.
"""

from __future__ import annotations

import argparse
import ast
import copy
import functools
import inspect
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Modules whose `__all__` is public, in the order of the page.
MODULES = (
    "ostinato",
    "ostinato.streaming",
    "ostinato.decoding",
    "ostinato.autodiff",
    "ostinato.training",
    "ostinato.quantization",
    "ostinato.onnxruntime",
    "ostinato.torch",
    "ostinato.ray",
)
# Names of onnxruntime's own interface, whose meaning its documentation tells.
_SHORT = ("ostinato.onnxruntime",)
HEADER = """\
# API reference

Every public name, from its docstring; `python -m tools.api_report --write docs/api.md` writes this
page. Commands are in [command line](cli.md).
"""
# The file of each definition, for bases of classes.
_BESIDE: dict[ast.stmt, ast.Module] = {}
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def file_of(module: str) -> Path | None:
    """The source of a module of the package; None for one that is not there."""
    path = ROOT / module.replace(".", "/")
    for found in (path / "__init__.py", path.with_suffix(".py")):
        if found.exists():
            return found
    return None


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """The parsed file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    _BESIDE.update(dict.fromkeys(tree.body, tree))
    return tree


def public(module: str) -> list[str]:
    """The names in `__all__`, or the public functions and classes that the module defines."""
    path = file_of(module)
    if path is None:
        return []
    for node in tree_of(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            own = [str(name) for name in ast.literal_eval(node.value)]
            others = [name for source in _starred(path) for name in public(source)]
            return sorted({*own, *others}) if others else own
    return [
        node.name
        for node in tree_of(path).body
        if isinstance(node, Definition) and not node.name.startswith("_")
    ]


def _starred(path: Path) -> list[str]:
    """The modules whose public names a file hands on."""
    nodes = [node for node in tree_of(path).body if isinstance(node, ast.ImportFrom)]
    return [str(node.module) for node in nodes if node.names[0].name == "*"]


def definition(module: str, name: str) -> Definition | None:
    """Where the name is defined, behind however many imports; None for what is no code of ours."""
    path = file_of(module)
    if path is None:
        return None
    for node in tree_of(path).body:
        if isinstance(node, Definition) and node.name == name:
            return node
    for source in _starred(path):
        if name in public(source):
            return definition(source, name)
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                # A function may have the name of the module that it stands in.
                if (alias.asname or alias.name) == name and node.module != module:
                    return definition(node.module, alias.name)
    return None


def signature(node: Definition) -> str:
    """`name(arguments) -> result`; of a class what makes one."""
    if isinstance(node, ast.ClassDef):
        for inner in node.body:
            if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
                return f"class {node.name}({_arguments(inner)})"
        is_record = any("dataclass" in ast.unparse(each) for each in node.decorator_list)
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        inside = ", ".join(_fields(node).values()) if is_record else bases
        return f"class {node.name}({inside})" if inside else f"class {node.name}"
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({_arguments(node)}){result}"


def _fields(node: ast.ClassDef) -> dict[str, str]:
    """The fields of a record by name, those of its bases in the same file first."""
    found: dict[str, str] = {}
    bases = {ast.unparse(base) for base in node.bases}
    for base in _BESIDE[node].body:
        if isinstance(base, ast.ClassDef) and base.name in bases:
            found |= _fields(base)
    for inner in node.body:
        if isinstance(inner, ast.AnnAssign) and "ClassVar" not in ast.unparse(inner.annotation):
            name = ast.unparse(inner.target)
            default = f" = {_default(inner.value)}" if inner.value else ""
            found[name] = f"{name}: {ast.unparse(inner.annotation)}{default}"
    return found


def _default(value: ast.expr) -> str:
    return ast.unparse(value) if isinstance(value, ast.Constant | ast.Name) else "..."


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    arguments = copy.deepcopy(node.args)
    for place in (arguments.posonlyargs, arguments.args):
        if place and place[0].arg in ("self", "cls"):
            del place[0]
    return ast.unparse(arguments)


def methods(node: ast.ClassDef) -> Iterator[Definition]:
    """The public methods and properties that have a docstring, in order; inherited ones behind."""
    own = {inner.name for inner in node.body if isinstance(inner, Definition)}
    for inner in node.body:
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(inner):
            shown = inner.name in ("__call__", "__enter__") or not inner.name.startswith("_")
            if shown and not any(".setter" in ast.unparse(d) for d in inner.decorator_list):
                yield inner
    for source in _BESIDE[node].body:
        if isinstance(source, ast.ImportFrom) and str(source.module).startswith("ostinato."):
            imported = {alias.name for alias in source.names}
            for base in imported.intersection(map(ast.unparse, node.bases)):
                found = definition(str(source.module), base)
                if isinstance(found, ast.ClassDef):
                    yield from (inner for inner in methods(found) if inner.name not in own)


def described(node: Definition) -> list[str]:
    """The docstring: its first paragraph as text, the rest as it stands."""
    text = inspect.cleandoc(ast.get_docstring(node) or "")
    first, _, rest = text.partition("\n\n")
    lines = [" ".join(first.split()), ""] if first else []
    return [*lines, "```text", rest, "```", ""] if rest else lines


def entry(name: str, node: Definition, whole: bool) -> list[str]:
    """What the page says of a name; of a class, its methods too if `whole`."""
    lines = [f"### {name}", "", "```python", signature(node), "```", "", *described(node)]
    if isinstance(node, ast.ClassDef) and whole:
        for method in methods(node):
            is_property = any("property" in ast.unparse(d) for d in method.decorator_list)
            shown = method.name if is_property else signature(method)
            lines += [f"#### {name}.{method.name}", "", "```python", shown, "```", ""]
            lines += described(method)
    return lines


def document() -> str:
    """The page."""
    lines = [HEADER]
    shown: set[Definition] = set()
    for module in MODULES:
        path = file_of(module)
        if path is None:
            continue
        first = (ast.get_docstring(tree_of(path)) or "").partition("\n\n")[0]
        lines += [f"## {module}", "", " ".join(first.split()), ""]
        for name in public(module):
            node = definition(module, name)
            if node in shown:
                lines += [f"### {name}", "", f"As [above](#{name.lower()}).", ""]
            elif node is not None:
                lines += entry(name, node, module not in _SHORT)
                shown.add(node)
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, help="the file to write")
    options = parser.parse_args()
    if options.write is None:
        print(document(), end="")
    else:
        options.write.write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main()

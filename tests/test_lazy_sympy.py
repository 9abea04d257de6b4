"""A compile loads no SymPy, and who wants it has it."""

from __future__ import annotations

import subprocess
import sys

COMPILE = """
import sys, onnx, ostinato
model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    g (float[N, T] x) => (float[M] y) <int64[1] flat = {-1}> {
        z = Exp(x)  y = Reshape(z, flat)
    }''')
ostinato.InferenceSession(model, cache_dir=None).run(None, {"x": [[1, 2]]})
loaded = [name for name in sys.modules if name.startswith("sympy.")]
"""


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_compiling_loads_no_sympy() -> None:
    assert _run(COMPILE + "print(loaded)") == "[]"


def test_symbolic_dimensions_still_add_up() -> None:
    code = COMPILE + "import onnx_ir, sympy; print(onnx_ir.SymbolicDim('N') + 1, sympy.Max(1, 2))"
    assert _run(code) == "N + 1 2"


def test_what_was_imported_before_stays_as_it_is() -> None:
    code = "import onnx_ir, sympy; before = sympy.Max\n" + COMPILE
    assert _run(code + "print(sympy.Max is before, bool(loaded))") == "True True"


def test_finders_are_those_of_before() -> None:
    code = "import sys; before = list(sys.meta_path)\nimport onnx\n" + COMPILE
    assert _run(code + "print([f for f in sys.meta_path if 'Lazy' in repr(f)])") == "[]"

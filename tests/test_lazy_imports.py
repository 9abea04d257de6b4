"""A compile loads no SymPy and no text forms of messages, and who wants them has them."""

from __future__ import annotations

import subprocess
import sys

COMPILE = """
import sys, ostinato
import ostinato.compiler, onnx
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


def test_modules_load_themselves_when_they_are_used() -> None:
    code = (
        COMPILE
        + """
assert type(sys.modules["google.protobuf.text_format"]) is not type(sys)
import onnx.utils, google.protobuf.json_format as json_format
from google.protobuf import text_format
assert text_format.Parse(text_format.MessageToString(model), onnx.ModelProto()) == model
assert json_format.Parse(json_format.MessageToJson(model), onnx.ModelProto()) == model
assert onnx.compose.add_prefix(model, "a").graph.output[0].name == "ay"
print(onnx.utils.Extractor(model).model == model)
"""
    )
    assert _run(code) == "True"


def test_messages_written_in_python_are_loaded_too() -> None:
    code = "import os; os.environ['PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION'] = 'python'\n" + COMPILE
    assert _run(code + "print(onnx.ModelProto.DESCRIPTOR.__class__.__module__)") == (
        "google.protobuf.descriptor"
    )

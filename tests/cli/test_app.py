import os
import subprocess
import sys
from pathlib import Path

import onnx

import ostinato
from tests.cli.conftest import Invoke


def test_help_lists_every_command(invoke: Invoke) -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    for command in ("run", "bench", "compare", "inspect", "demo"):
        assert command in result.stdout
        help_text = invoke(command, "--help")
        assert help_text.exit_code == 0 and f"Example: ostinato {command} " in help_text.stdout
        assert invoke(command, "-h").exit_code == 0


def test_version(invoke: Invoke) -> None:
    assert invoke("--version").stdout == f"ostinato {ostinato.__version__}\n"


def test_module_is_the_same_program() -> None:
    command = [sys.executable, "-m", "ostinato", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == f"ostinato {ostinato.__version__}\n"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from ostinato.cli.app import app\n"
        "try: app(['run', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'onnx', 'onnx_ir', 'llvmlite', 'onnxruntime', 'matplotlib'}\n"
        "sys.exit(','.join(sorted(heavy & set(sys.modules))) or 0)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def test_names_that_the_output_has_no_characters_for_are_escaped(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
    path = tmp_path / "größe.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    command = [sys.executable, "-m", "ostinato", "run", str(path), "--no-cache"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (result.returncode, result.stderr) == (0, "")
    assert "gr\\xf6\\xdfe.onnx" in result.stdout

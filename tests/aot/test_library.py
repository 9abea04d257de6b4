from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ostinato.compiler
from ostinato.aot.library import Library, compile_library
from ostinato.codegen.llvm import emit_object
from ostinato.errors import InputError, OptionError, UnsupportedError
from ostinato.options import Options
from tests.aot import models
from tests.aot.caller import CC, CXX, needs_compiler

PROGRAMS = Path(__file__).parent / "programs"
STRICT = ("-Wall", "-Wextra", "-pedantic", "-Werror")
SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")


def written(folder: Path, *libraries: Library) -> list[str]:
    """Write libraries to the folder; returns what links them."""
    for library in libraries:
        (folder / f"{library.name}.h").write_text(library.header())
        (folder / f"lib{library.name}.a").write_bytes(library.archive())
    return [str(folder / f"lib{library.name}.a") for library in libraries]


def compiled(source: Path, folder: Path, options: Sequence[str], *libraries: Library) -> Path:
    """A program of C or C++."""
    files = written(folder, *libraries)
    program = folder / source.stem
    compiler = CC if "-std=c99" in options else CXX
    command = [compiler, *STRICT, *options, "-I", folder, source, *files, "-pthread", "-o", program]
    found = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return program


def quantized_library() -> Library:
    return compile_library(models.quantized(), Options(), "quantized", "quantized")


@needs_compiler
def test_two_models_and_four_threads_in_one_program(tmp_path: Path) -> None:
    source, libraries = PROGRAMS / "threads.c", (models.gru_library(), quantized_library())
    program = compiled(source, tmp_path, ("-std=c99", *SANITIZED), *libraries)
    found = subprocess.run([program], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    stream = ostinato.InferenceSession(models.gru()).stream(models.GRU_STATES)
    for step in range(200):
        x = ((step + np.arange(15)) % 7 - 3).astype(np.float32).reshape(3, 1, 5)
        (y,) = stream.step({"x": x})
    feeds = {"x": (11 * np.arange(24)).astype(np.uint8).reshape(4, 6)}
    (sums,) = ostinato.InferenceSession(models.quantized()).run(None, feeds)
    printed = found.stdout.split()
    assert [float.fromhex(text) for text in printed[: y.size]] == y.reshape(-1).tolist()
    assert [int(text) for text in printed[y.size :]] == sums.reshape(-1).tolist()


@needs_compiler
@pytest.mark.parametrize("standard", ["-std=c99", "-std=c++17"])
def test_awkward_names_become_identifiers(standard: str, tmp_path: Path) -> None:
    library = compile_library(models.parsed(models.AWKWARD), Options(), "awkward", "an */ awkward")
    source = PROGRAMS / "tensors.c"
    language = () if standard == "-std=c99" else ("-x", "c++")
    files = written(tmp_path, library)
    command = [CC, *STRICT, standard, *language, "-I", tmp_path, source, "-x", "none", *files]
    program = tmp_path / "tensors"
    subprocess.run([*map(str, command), "-o", str(program)], check=True)
    found = subprocess.run([program], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == [
        "a:b float32 4 2 -1 I",
        "a.b float32 4 2 -1 I",
        "class bool 1 1 -1 T-1",
        "int64_t float32 4 1 -1 size_t",
        "/* float32 4 1 -1 awkward",
        "1 -",
        "object -",
        "size_t -",
        "typeof -",
    ]


@needs_compiler
def test_headers_are_strict_c99_and_c_plus_plus(tmp_path: Path) -> None:
    libraries = [
        models.gru_library(),
        models.gru_library(weights_in_file=True, name="apart"),
        quantized_library(),
        compile_library(models.greedy(), Options(), "greedy", "greedy"),
    ]
    written(tmp_path, *libraries)
    source = "".join(f'#include "{library.name}.h"\n' for library in libraries)
    for compiler, standard, name in ((CC, "c99", "all.c"), (CXX, "c++17", "all.cpp")):
        (tmp_path / name).write_text(f"{source}int main() {{ return 0; }}\n".replace(
            "main()", "main(void)" if standard == "c99" else "main()"))  # fmt: skip
        command = [compiler, *STRICT, f"-std={standard}", "-fsyntax-only", str(tmp_path / name)]
        subprocess.run([str(part) for part in command], check=True)


def test_headers_say_which_processor_the_code_needs() -> None:
    text = " ".join(models.gru_library(target="x86-64-v3").header().split())
    assert "all instructions of x86-64-v3 exist; other processors stop at an illegal" in text
    assert "illegal instruction" not in models.gru_library(target="wasm").header()


@pytest.fixture
def optimized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code as users get it: that of most tests is made in less time."""
    monkeypatch.setattr(ostinato.compiler, "emit_object", emit_object)


def symbols(library: Library, folder: Path, option: str) -> set[str]:
    """What nm lists of all members together."""
    (path,) = written(folder, library)
    listed = subprocess.run(
        ["nm", "-P", option, path], capture_output=True, text=True, check=True
    ).stdout
    return {line.split()[0] for line in listed.splitlines() if len(line.split()) > 1}


@pytest.mark.skipif(shutil.which("nm") is None, reason="no nm here")
@pytest.mark.parametrize("make", [models.gru_library.__wrapped__, quantized_library])
@pytest.mark.usefixtures("optimized")
def test_only_the_allocator_is_called_and_only_the_interface_is_there(
    make: Any, tmp_path: Path
) -> None:
    check_symbols(make(), tmp_path)


def check_symbols(library: Library, tmp_path: Path) -> None:
    own = symbols(library, tmp_path, "--defined-only") & symbols(library, tmp_path, "-g")
    functions = {*library.functions, f"{library.name}_create", f"{library.name}_destroy"}
    assert own == functions
    assert symbols(library, tmp_path, "-u") - functions == {"malloc", "free"}
    assert all(f"{name}(" in library.header() for name in functions)


@pytest.mark.skipif(shutil.which("nm") is None, reason="no nm here")
@pytest.mark.usefixtures("optimized")
def test_the_denoiser_is_at_most_60_kilobytes_beside_its_weights(tmp_path: Path) -> None:
    library = models.denoiser_library.__wrapped__("x86-64-v4")
    assert len(library.archive()) - library.interface.constant_bytes <= 60_000
    check_symbols(library, tmp_path)


def test_equal_builds_are_equal_files() -> None:
    assert quantized_library().archive() == quantized_library().archive()


REFUSED = {
    "g (string[N] x) => (string[N] y) { y = Identity (x) }": ("'x' is string", "expected tensors"),
    "g (seq(float[N]) x) => (float[N] y) { i = Constant <value = int64 {0}> () "
    "y = SequenceAt (x, i) }": ("m: input 'x' is seq", "expected tensors"),
    "g (float[6] x, bool c) => (float[] z) { y = If (c) <then_branch = a () => (float[6] s) "
    "{ s = Tanh (x) }, else_branch = b () => (float[2, 3] s) "
    "{ n = Constant <value_ints = [2, 3]> () s = Reshape (x, n) }> "
    "z = RandomNormalLike (y) }": ("node 'y' (If)", "of the"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_native_is_refused_by_name(text: str) -> None:
    with pytest.raises(UnsupportedError) as raised:
        compile_library(models.parsed(text), Options(), "m", "m")
    assert all(word in str(raised.value) for word in REFUSED[text])


def test_states_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="unknown input 'h'"):
        compile_library(models.gru(), Options(), "m", "m", {"h": "h_out"})
    with pytest.raises(InputError, match=r"state 'h_in' has shape .* got \[1, 2, 8\]"):
        initial = {"h_in": np.ones((1, 2, 8), np.float32)}
        compile_library(models.gru(), Options(), "m", "m", models.GRU_STATES, initial)


def test_memory_of_states_that_grow_has_the_sizes_of_the_build() -> None:
    options = Options(specialize={"N": 1, "T": 1})
    library = compile_library(models.DECODER, options, "m", "m", models.DECODER_STATES)
    assert "M_NEXT_KEYS_ELEMENTS(capacity_of_P) ((size_t)(capacity_of_P) * 16)" in library.header()


def test_a_state_that_is_longer_after_every_step_is_refused() -> None:
    text = """g (float[N, 4] s, float[4] x) => (float[M, 4] t) {
        axes = Constant <value_ints = [0]> () row = Unsqueeze (x, axes)
        all = Concat <axis = 0> (s, row) t = Neg (all) }"""
    with pytest.raises(InputError, match=r"float32\[N, 4\] before and float32\[N \+ 1, 4\] after"):
        compile_library(models.parsed(text), Options(), "m", "m", {"s": "t"})


def test_sizes_that_only_a_call_tells_have_the_names_of_the_model() -> None:
    text = """g (float[N] x, int64[1] k) => (int64[1, places] y, float[N, M] z, float[rows, 2] w) {
        y = NonZero (x) axes = Constant <value_ints = [1]> () column = Unsqueeze (x, axes)
        one = Constant <value_ints = [1]> () shape = Concat <axis = 0> (one, k)
        z = Expand (column, shape) two = Constant <value_ints = [2]> ()
        wide = Concat <axis = 0> (k, two) half = Constant <value = float {0.5}> ()
        w = Expand (half, wide) }"""
    library = compile_library(models.parsed(text), Options(), "m", "m")
    described = [tensor.described for tensor in library.interface.outputs[:3]]
    assert described == ["int64[1, places]", "float32[N, M]", "float32[rows, 2]"]
    assert "   shape_of_y gets the sizes of y, which only the call tells" in library.header()


def test_states_that_grow_begin_without_rows() -> None:
    initial = {"keys": np.ones((1, 2, 3, 8), np.float32)}
    with pytest.raises(InputError, match="initial: state 'keys' grows, and begins without rows"):
        compile_library(models.DECODER, Options(), "m", "m", models.DECODER_STATES, initial)


def test_threads_are_the_callers() -> None:
    with pytest.raises(OptionError, match="threads=2"):
        compile_library(models.gru(), Options(threads=2), "m", "m")

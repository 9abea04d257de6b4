"""WebAssembly: a model as NAME.wasm, an ES module NAME.mjs that runs it, and its types NAME.d.mts.

The code imports nothing. The module finds out which of two files an engine runs: one whose
multiply-adds the engine fuses, or a slower one that needs no such instruction. Both have the same
bits.
"""

from __future__ import annotations

import json
import keyword
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ostinato.aot.interface import DIMENSIONS, ERRORS, Interface, Size, Tensor, error
from ostinato.aot.library import Library
from ostinato.aot.zig import require_zig, zig
from ostinato.codegen.webassembly import LOWEST_ADDRESS
from ostinato.version import __version__

# The module of `tests/aot/test_webassembly.py`, which says what they are, in base64.
SIMD_PROBE = "AGFzbQEAAAABBAFgAAADAgEAChcBFQD9DAAAAAAAAAAAAAAAAAAAAAAaCw=="
FUSES_PROBE = (
    "AGFzbQEAAAABBQFgAAF/AwIBAAcJAQVmdXNlcwAACkcBRQBDAAiAP/0TQwAIgD/9E0MAEIC//RP9hQL9owFEAAAAAgAA"
    "8D/9FEQAAAACAADwP/0URAAAAAQAAPC//RT9hwL9wwFxCw=="
)

_TEMPLATE = Path(__file__).with_name("module.mjs")


def web_files(library: Library) -> dict[str, bytes]:
    """The files of a model for the web, by name.

    Raises `OptionError` without a linker, `OstinatoError` with what it says where it fails.
    """
    modules = {library.name: library}
    if library.baseline is not None:
        modules[f"{library.name}.baseline"] = library.baseline
    linked, rows = {}, []
    for stem, one in modules.items():
        linked[f"{stem}.wasm"] = link(one)
        row = _identified(f"{stem}.wasm", linked[f"{stem}.wasm"])
        row["needsFusing"] = one.target.machine.fused_multiply_add == "relaxed"
        if one.weights is not None:
            linked[f"{stem}.weights"] = one.weights
            row["weights"] = _identified(f"{stem}.weights", one.weights)
        rows.append(row)
    types = declarations(library.interface)
    texts = {
        f"{library.name}.mjs": module_text(library.interface, rows),
        # TypeScript looks for the first one beside a .mjs, other tools for the second.
        f"{library.name}.d.mts": types,
        f"{library.name}.d.ts": types,
    }
    return linked | {file: text.encode() for file, text in texts.items()}


def _identified(file: str, contents: bytes) -> dict[str, Any]:
    return {"file": file, "bytes": len(contents), "checksum": checksum(contents)}


def link(library: Library) -> bytes:
    """The code and the weights as a module without imports, which exports its memory."""
    exports = [one for one in library.functions if not needless(library, one)]
    return link_objects([library.object], exports)


def needless(library: Library, function: str) -> bool:
    """Whether the ES module does without a function: it holds the tables itself."""
    return function.removeprefix(f"{library.name}_") in ("error_text", "input", "output")


def link_objects(objects: Sequence[bytes], exports: Sequence[str]) -> bytes:
    """Objects as one module.

    Raises `OptionError` without a linker, `OstinatoError` with what it says where it fails.
    """
    require_zig("a WebAssembly module")
    # The stack lies first, so that no address of a tensor is below `LOWEST_ADDRESS`.
    options = ["--no-entry", "--strip-all", "--stack-first", "-z", f"stack-size={LOWEST_ADDRESS}"]
    options += [f"--export={name}" for name in ("__heap_base", *exports)]
    with tempfile.TemporaryDirectory(prefix="ostinato-") as folder:
        place = Path(folder)
        names = [f"{number}.o" for number in range(len(objects))]
        for name, contents in zip(names, objects, strict=True):
            (place / name).write_bytes(contents)
        zig(["wasm-ld", *options, *names, "-o", "code.wasm"], place)
        return (place / "code.wasm").read_bytes()


def checksum(contents: bytes) -> int:
    """FNV-1a over words of 32 bits, as `module.mjs` computes it."""
    padded = contents + bytes(-len(contents) % 4)
    total = 0x811C9DC5
    for word in np.frombuffer(padded, "<u4").tolist():
        total = (total ^ word) * 0x01000193 & 0xFFFFFFFF
    return total


# The module


def module_text(interface: Interface, files: Sequence[dict[str, Any]]) -> str:
    """The text of NAME.mjs."""
    table = json.dumps(_described(interface, files), indent=1)
    template = _TEMPLATE.read_text(encoding="utf-8")
    body = template.replace("'SIMD_PROBE'", f"'{SIMD_PROBE}'")
    body = body.replace("'FUSES_PROBE'", f"'{FUSES_PROBE}'")
    return f"// {_title(interface)}\n\nconst MODEL = {table};\n\n{body}"


def _title(interface: Interface) -> str:
    title = " ".join(interface.title.split())
    return f"{title}, compiled by Ostinato {__version__} for WebAssembly."


def _described(interface: Interface, files: Sequence[dict[str, Any]]) -> dict[str, Any]:
    messages = {str(error(kind)): text for kind, text in ERRORS.items()}
    messages |= {str(code): text for code, text in enumerate(interface.checks, 1)}
    inputs, outputs = interface.step_inputs, interface.step_outputs
    called = next(iter(interface.places.values()))
    return {
        "name": interface.name,
        "inputs": [_tensor(tensor) for tensor in interface.inputs],
        "outputs": [_tensor(tensor) for tensor in interface.outputs],
        "states": [[state.read, state.written] for state in interface.states],
        "shown": [[function, _tensor(tensor)] for function, tensor in interface.shown],
        "step": {"inputs": inputs, "outputs": outputs},
        "called": dict(zip(("inputs", "outputs"), called, strict=True)),
        "runs": "run" in interface.places,
        "sizes": [
            {"name": size_name(size), "kind": size.kind, "source": size.source}
            for size in interface.sizes
        ],
        "maxRank": interface.max_rank,
        "exact": interface.shapes,
        "plainOutputs": interface.has_plain_outputs,
        "errors": messages,
        "files": files,
    }


def size_name(size: Size) -> str:
    """The name of a size: of a dimension that of the model."""
    return size.name if size.kind in DIMENSIONS else size.identifier


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "type": tensor.dtype,
        "array": _array(tensor),
        "dims": list(tensor.shape),
    }


def _array(tensor: Tensor) -> str:
    """The elements of the typed array; types that JavaScript lacks are integers of their bits."""
    return {"float": "float32", "double": "float64"}.get(
        tensor.c_type, tensor.c_type.removesuffix("_t")
    )


# The types


def _array_type(tensor: Tensor) -> str:
    """The class of the typed array: `Float32Array`, `BigUint64Array`."""
    array = _array(tensor)
    kind = array.capitalize()
    return f"Big{kind}Array" if array in ("int64", "uint64") else f"{kind}Array"


def _elements(tensor: Tensor) -> str | None:
    """JavaScript's array type of an element; None for types of which it sees only the bits."""
    if tensor.dtype == "bool":
        return "boolean | number"
    if _array(tensor) != tensor.dtype:
        return None
    return "bigint | number" if _array_type(tensor).startswith("Big") else "number"


def _lists(tensor: Tensor) -> list[str]:
    elements = _elements(tensor)
    if elements is None:
        return []
    return [f"readonly ({elements})[]" if "|" in elements else f"readonly {elements}[]"]


def _number(tensor: Tensor) -> list[str]:
    elements = _elements(tensor)
    return [] if elements is None or tensor.shape else [elements]


def _key(name: str) -> str:
    plain = re.fullmatch(r"[A-Za-z_$][\w$]*", name) and not keyword.iskeyword(name)
    return name if plain else json.dumps(name)


def declarations(interface: Interface) -> str:
    """The text of NAME.d.ts."""
    return "\n".join(_declarations(interface)) + "\n"


def _declarations(interface: Interface) -> Iterator[str]:
    step_inputs, step_outputs = interface.step_inputs, interface.step_outputs
    reads = [state.read for state in interface.states]
    yield f"// {_title(interface)}"
    yield ""
    yield "/** Numbers that only a call tells. Those left out are 1, or follow from arrays. */"
    yield "export interface Sizes {"
    for size in interface.sizes:
        bound = {
            "state": "The same in all steps of a stream.",
            "capacity": "Rows of growing states that a stream has room for; to be given.",
            "call": "Of a stream the most that a step has.",
            "value": "An element of an input, at most.",
            "spare": "Bytes for values of which nobody knows beforehand how large they get.",
        }[size.kind]
        yield f"  /** {bound} */"
        yield f"  {_key(size_name(size))}?: number;"
    yield "}"
    yield ""
    every = next(iter(interface.places.values()))
    yield from _record("Inputs", "What a whole call takes.", interface.inputs, every[0], reads)
    yield from _record("Outputs", "What a whole call gives.", interface.outputs, every[1])
    if interface.states:
        yield from _record("StepInputs", "What a step takes.", interface.inputs, step_inputs)
        yield from _record("StepOutputs", "What a step gives.", interface.outputs, step_outputs)
        kept = [tensor for _, tensor in interface.shown]
        yield from _record("States", "What a stream keeps.", kept, range(len(kept)))
    given = ["StepInputs"]
    if len(step_inputs) == 1:
        tensor = interface.inputs[step_inputs[0]]
        given += [_array_type(tensor), *_lists(tensor)]
    text = _TYPES.replace("GIVEN", " | ".join(given))
    if "run" not in interface.places:
        text = re.sub(r"\n  /\*\* Compute all outputs.*?;\n", "\n", text, flags=re.DOTALL)
    if not interface.weights_in_file:
        text = re.sub(r"\n/\*\* Fetch the weights.*?;(?=\n)", "", text, flags=re.DOTALL)
        text = text.replace(", weights?: Source", "").replace(", weights: Uint8Array", "")
    if not interface.states:
        text = text[: text.index("/** A signal")]
        text = re.sub(r"(?s)\n  /\*\* The states of one signal.*?;\n", "\n", text)
    yield text.strip()


def _record(
    name: str,
    title: str,
    tensors: Sequence[Tensor],
    places: Sequence[int],
    optional: Sequence[int] = (),
) -> Iterator[str]:
    takes = name.endswith("Inputs")
    yield f"/** {title} */"
    yield f"export interface {name} {{"
    for place in places:
        tensor = tensors[place]
        type_ = _array_type(tensor)
        if takes:
            type_ = " | ".join([type_, f"TensorLike<{type_}>", *_lists(tensor), *_number(tensor)])
        mark = "?" if place in optional and takes else ""
        yield f"  /** {tensor.described.replace('*/', '* /')} */"
        yield f"  {'' if takes else 'readonly '}{_key(tensor.name)}{mark}: {type_};"
    yield "}"
    yield ""


_TYPES = """
/** A tensor of another library: onnxruntime-web's for instance. */
export interface TensorLike<A> {
  data: A;
  dims?: readonly number[];
}

export interface TensorInfo {
  /** Of an element: "float32", "int64", "bool", .. */
  readonly type: string;
  /** The typed array of the elements; types that JavaScript lacks are integers of their bits. */
  readonly Array: new (length: number) => ArrayBufferView;
  /** Sizes, or names of run-time sizes. */
  readonly dims: readonly (number | string)[];
}

/** Where the code comes from: a file, its bytes, or a module that is compiled already. */
export type Source =
  | string | URL | Response | ArrayBuffer | ArrayBufferView | WebAssembly.Module
  | Promise<Response | ArrayBuffer>;

/** Name of the model. */
export const name: string;
/** What a call takes, by name. */
export const inputs: Readonly<Record<keyof Inputs, TensorInfo>>;
/** What a call gives, by name. */
export const outputs: Readonly<Record<keyof Outputs, TensorInfo>>;
/** The output of each state, by its input. */
export const states: Readonly<Record<string, keyof Outputs>>;
/** Names of the run-time sizes. */
export const sizes: readonly (keyof Sizes)[];

/** Whether this engine rounds a multiply-add once, as the faster one of two builds demands. */
export function fuses(): boolean;
/** The name of the file that this engine runs; throws where there is none. */
export function file(): string;
/** Fetch and compile; the module may be posted to other threads, which `instantiate` it. */
export function compile(source?: Source): Promise<WebAssembly.Module>;
/** Fetch the weights: from the file beside this one, or from `source`. */
export function weights(source?: Source): Promise<Uint8Array>;
/** Fetch, compile and start the model: from the file beside this one, or from `source`. */
export function load(source?: Source, weights?: Source): Promise<Model>;
/** Start a compiled module at once: in an `AudioWorkletProcessor`, which cannot wait. */
export function instantiate(module: WebAssembly.Module, weights: Uint8Array): Model;
export default load;

export class Model {
  private constructor();
  /** The compiled module, which other threads can `instantiate`. */
  readonly module: WebAssembly.Module;
  /** Compute all outputs, as arrays of their own. States that are left out begin anew. */
  run(inputs: Inputs, sizes?: Sizes): Outputs;
  /** The states of one signal. */
  stream(sizes?: Sizes): Stream;
}

/** A signal that is computed step by step, with states of its own. */
export class Stream {
  private constructor();
  /** The sizes that it was made for. */
  readonly sizes: Required<Sizes>;
  /** Views to fill before `step()`; they end when the model's memory grows. */
  readonly inputs: StepOutputsOf<StepInputs>;
  /** Views of what the last step gave, until the next one. */
  readonly outputs: StepOutputs;
  /** Views of the states, to read or to change. */
  readonly states: States;
  /** One step, of what `inputs` hold where nothing is given. Returns views, until the next step. */
  step(inputs?: GIVEN): StepOutputs;
  /** Back to the states before the first step. */
  reset(): void;
  /** The states as bytes, which any build of this model loads, on any machine. */
  save(): Uint8Array;
  /** Take over states that were saved. */
  load(bytes: Uint8Array): void;
  /** Another stream that goes on from here. */
  fork(): Stream;
  /** Give the memory back; a stream that nobody refers to does so by itself. */
  close(): void;
}

/** The arrays of a record of inputs. */
type StepOutputsOf<T> = { readonly [K in keyof T]: Extract<T[K], ArrayBufferView> };
"""

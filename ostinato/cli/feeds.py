"""Inputs of a model: arrays in files, and those that are made up for want of a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostinato.cli import common
from ostinato.element_types import dtype_name, numpy_dtype
from ostinato.errors import InputError, OstinatoError
from ostinato.options import Options

if TYPE_CHECKING:
    import numpy as np

    from ostinato.runtime.session import InferenceSession, NodeArg

SEED = 0


def open_fed(
    model: Path, options: Options, input: Sequence[str] | None, dim: Sequence[str] | None
) -> tuple[InferenceSession, dict[str, np.ndarray]]:
    """A session, and an array for every input, as of `feeds_of`.

    Files that cannot be read, and names that the model does not have, are refused before it is
    compiled.

    input, dim: the values of --input and --dim.
    """
    files, dims = (
        common.parse_pairs("--input", input, "NAME=FILE.npy"),
        common.parse_sizes("--dim", dim),
    )
    if (files or dims) and (inputs := declared(model)):
        sizes = {size for shape in inputs.values() for size in shape if size}
        _require_names(list(inputs), sizes, files, dims)
    for name, path in files.items():
        read_array(name, path)
    session = common.open_session(model, options)
    return session, feeds_of(session, files, dims)


def declared(model: Path) -> dict[str, list[str]]:
    """The names of the sizes of each input, as the file has them; empty for sizes without one.

    Of a file that is no model nothing: what compiles it says what is wrong with it.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        inputs = onnx.load(model, load_external_data=False).graph.input
    except DecodeError:
        return {}
    return {
        value.name: [size.dim_param for size in value.type.tensor_type.shape.dim]
        for value in inputs
    }


def _require_names(
    inputs: Sequence[str], sizes: AbstractSet[str], files: Iterable[str], dims: Iterable[str]
) -> None:
    for name in files:
        if name not in inputs:
            raise InputError(f"--input {name!r}: the model has no such input, it has {inputs}")
    for name in dims:
        if name not in sizes:
            raise InputError(
                f"--dim {name!r}: the model's inputs have no such dimension, "
                f"they have {sorted(sizes) or 'none with a name'}"
            )


def _feedable(session: InferenceSession, files: Mapping[str, str]) -> list[NodeArg]:
    """The inputs, and those initializers that a file overrides."""
    defaults = session.get_overridable_initializers()
    return [*session.get_inputs(), *(value for value in defaults if value.name in files)]


def feeds_of(
    session: InferenceSession, files: Mapping[str, str], dims: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """An array for every input, as of `make_feeds`, of which the model makes finite numbers.

    Those that are made up are made positive where it does not, as a Log needs.

    Raises `InputError` for what `make_feeds` refuses, and where the model fails for such inputs.
    """
    import numpy as np

    feeds = make_feeds(_feedable(session, files), files, dims)
    made_up = {name: array for name, array in feeds.items() if name not in files}
    if not made_up:
        return feeds
    try:
        results = session.run(None, feeds)
    except OstinatoError as error:
        told = ", ".join(
            f"{name}{common.format_shape(array.shape)}" for name, array in made_up.items()
        )
        raise InputError(
            f"{error}; inputs were made up: {told}; where the model needs others, give "
            "--dim NAME=SIZE, if sizes have names, or --input NAME=FILE.npy"
        ) from error
    floats = {name: array for name, array in made_up.items() if is_float(array.dtype)}
    arrays = [array for array in results if isinstance(array, np.ndarray)]
    if all(np.isfinite(array).all() for array in arrays if is_float(array.dtype)):
        return feeds
    return {**feeds, **{name: np.asarray(np.abs(array)) for name, array in floats.items()}}


def make_feeds(
    arguments: Sequence[NodeArg], files: Mapping[str, str], dims: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """An array for every input: read from its file, or random with a fixed seed.

    A named dimension has the size that `dims` or a file gives it, else 1. Floats are normal with
    deviation 0.1; integers are 0 or 1, so that they are valid indices, and so are strings.

    Raises:
        InputError: a file names no input or is no .npy file, a dimension does not exist, or an
            input has a type that cannot be made up.
    """
    import numpy as np

    names = [argument.name for argument in arguments]
    named = {dim for arg in arguments for dim in arg.shape or () if isinstance(dim, str)}
    _require_names(names, named, files, dims)
    kinds = {argument.name: argument.type for argument in arguments}
    feeds = {name: read_array(name, path, kinds[name]) for name, path in files.items()}
    sizes: dict[str, int] = {}
    for argument in arguments:
        if argument.name in feeds:
            pairs = zip(argument.shape or (), feeds[argument.name].shape, strict=False)
            sizes.update((dim, size) for dim, size in pairs if isinstance(dim, str))
    sizes.update(dims)
    rng = np.random.default_rng(SEED)
    for argument in arguments:
        if argument.name not in feeds:
            feeds[argument.name] = _made_up(argument, sizes, rng)
    return {name: feeds[name] for name in names}


def _made_up(argument: NodeArg, sizes: Mapping[str, int], rng: np.random.Generator) -> np.ndarray:
    import numpy as np

    if not argument.type.startswith("tensor(") or argument.shape is None:
        what = argument.type if argument.shape is not None else "unknown rank"
        raise InputError(
            f"input {argument.name!r}: values of {what} cannot be made up, "
            f"give --input {argument.name}=FILE.npy"
        )
    shape = [dim if isinstance(dim, int) else sizes.get(dim, 1) for dim in argument.shape]
    dtype = numpy_type(argument.type)
    try:
        if dtype.kind == "O":
            return np.asarray(rng.integers(0, 2, shape).astype(str), dtype)
        values = 0.1 * rng.standard_normal(shape) if is_float(dtype) else rng.integers(0, 2, shape)
        return np.asarray(values, dtype)
    except (MemoryError, ValueError) as error:
        raise InputError(
            f"input {argument.name!r}: there is no memory for values of the shape {shape}; "
            "give smaller sizes, --dim NAME=SIZE, where they have names"
        ) from error


def numpy_type(kind: str) -> np.dtype[Any]:
    """The dtype of the elements of a type such as "tensor(bfloat16)"."""
    return numpy_dtype(dtype_name(kind.removeprefix("tensor(").removesuffix(")")))


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether values are floats; to NumPy those of ml_dtypes are bytes without a meaning."""
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)


def read_array(name: str, path: str, kind: str = "") -> np.ndarray:
    """The array in a .npy file. Raises `InputError` that names the input.

    kind: the type of the input. NumPy stores what it does not know, as bfloat16, as bytes without
    a name, which are read as elements of that type.
    """
    import numpy as np

    try:
        array = np.load(path, allow_pickle=False)
    except OSError as error:
        raise InputError(f"input {name!r}: cannot read {path}: {error.strerror}") from error
    except (ValueError, EOFError) as error:
        raise InputError(f"input {name!r}: {path} is not a .npy file of numbers") from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"input {name!r}: {path} is an archive, expected one .npy array")
    if array.dtype.kind == "V" and kind.startswith("tensor("):
        wanted = numpy_type(kind)
        if wanted.kind == "V" and array.itemsize == wanted.itemsize:
            return array.view(wanted)
    return array

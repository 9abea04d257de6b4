"""Kernels for what `onnx.reference` lacks or computes in another way than the documents of ONNX.

What `onnx.reference` 1.23 does instead:

* Scan: axis 0 and forward only, no sequences of length 0, nothing of opset 8;
* Loop: an absent condition counts as false, scalars are stacked to a column, vectors end to end,
  and a loop of no steps has no outputs to stack;
* If: a branch may not return an empty optional;
* Optional: wraps the value in a list, an absent one as well, so that none is ever empty;
* Identity: of an empty optional it is an error;
* BatchNormalization of versions 7 to 13: mixes the statistics of the input into the given ones;
* Slice: one that falls from before the front of an axis takes nothing, as in NumPy;
* Scatter, the old name of ScatterElements, and ZipMap: are missing;
* MaxPool: indices begin anew in each channel and window. These are refused here;
* ConvTranspose: groups are an error, and so are attributes `output_shape` of another size;
* ConvInteger: zero points of the filters fit images of two axes only;
* Resize: axes that are counted from the end are an error;
* GridSample: moves places to the border before cubic interpolation; MaxUnpool: indices count over
  another shape than that of the output. Both are refused here;
* RNN, GRU and LSTM: most attributes are ignored. These are refused here;
* SequenceInsert: the position behind the last tensor counts as the first one, and is an error in an
  empty sequence;
* OneHot: of strings it is an error;
* Unique: along an axis it knows no strings, and unsorted it takes rows of the first axis;
* StringNormalizer: takes accents off letters, and removes stop words after it changed the case;
* StringSplit: an empty string has one piece if there is a delimiter;
* LogSoftmax: is minus infinity where Softmax is 0;
* TfIdfVectorizer: without weights it is an error;
* STFT: a signal without an axis of parts is an error;
* random numbers: are others in every run, from a generator of its own. These are refused here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_batch_normalization import _batchnorm_test_mode, _batchnorm_training_mode
from onnx.reference.ops.op_conv_integer import ConvInteger as _ConvInteger
from onnx.reference.ops.op_conv_transpose import ConvTranspose as _ConvTranspose
from onnx.reference.ops.op_max_pool import MaxPool as _MaxPool
from onnx.reference.ops.op_resize import Resize as _Resize
from onnx.reference.ops.op_scatter_elements import scatter_elements
from onnx.reference.ops.op_stft import STFT as _STFT
from onnx.reference.ops.op_string_split import StringSplit as _StringSplit
from onnx.reference.ops.op_tfidf_vectorizer import TfIdfVectorizer as _TfIdfVectorizer

from ostinato.graph.facts import FACTS
from ostinato.limits import MOST_BYTES
from ostinato.reference.maps import map_maker
from ostinato.reference.ml import KERNELS as ML_KERNELS
from ostinato.reference.moves import KERNELS as MOVES
from ostinato.sizes.slices import slice_range

Array = np.ndarray[Any, Any]
Values = list[Any]


class _Kernel(OpRun):
    op_domain = ""

    @property
    def version(self) -> int:
        """The version of the standard operators that the model imports."""
        return int(self.run_params["opsets"][""])

    def _check_and_fix_outputs(self, res: tuple[Any, ...]) -> tuple[Any, ...]:
        """The outputs as they are: an empty optional is None, which the base class refuses."""
        return res


class _Control(_Kernel):
    """An operator with bodies that read values of the graph around it."""

    def need_context(self) -> bool:
        return True

    def _step(
        self, body: ReferenceEvaluator, context: Mapping[str, Any] | None, inputs: Sequence[Any]
    ) -> Values:
        """The outputs of a body for the values of its inputs."""
        feeds = {**(context or {}), **dict(zip(body.input_names, inputs, strict=True))}
        return [np.asarray(r) if isinstance(r, np.generic) else r for r in body.run(None, feeds)]


class If(_Control):
    """Runs one of two branches."""

    then_branch: ReferenceEvaluator
    else_branch: ReferenceEvaluator

    def _run(self, condition: Array, context: Any = None, **_: Any) -> tuple[Any, ...]:
        if condition.size != 1:
            raise ValueError(f"the condition has {condition.size} elements, not one")
        return tuple(self._step(self.then_branch if condition else self.else_branch, context, ()))


class Loop(_Control):
    """Runs its body until the trip count is reached or a condition is false."""

    body: ReferenceEvaluator

    def _run(
        self,
        trip_count: Array | None = None,
        condition: Array | None = None,
        *states: Any,
        context: Any = None,
        **_: Any,
    ) -> tuple[Any, ...]:
        limit = None if trip_count is None else int(np.asarray(trip_count).item())
        going = np.array(True) if condition is None else np.asarray(condition).reshape(())
        # An absent last state is not among the arguments.
        count = len(self.body.input_names) - 2
        carried = [*states, *[None] * (count - len(states))]
        initial = going, list(carried)
        collected: list[Values] = [[] for _ in self.body.output_names[1 + count :]]
        step = 0
        while going and (limit is None or step < limit):
            inputs = [np.array(step, np.int64), going, *carried]
            going, *results = self._step(self.body, context, inputs)
            going = np.asarray(going).reshape(())
            carried = results[:count]
            for rows, row in zip(collected, results[count:], strict=True):
                rows.append(row)
            step += 1
            if step == 1 and limit is not None and _goes_on(self.body):
                _require_memory(limit, [row for rows in collected for row in rows])
        if step == 0 and collected:
            # One step of the body tells which shape the missing rows have.
            inputs = [np.array(0, np.int64), initial[0], *initial[1]]
            rows = self._step(self.body, context, inputs)[1 + count :]
            stacked = [np.empty((0, *row.shape), row.dtype) for row in rows]
        else:
            stacked = [np.stack(rows) for rows in collected]
        return (*carried, *stacked)


def _goes_on(body: ReferenceEvaluator) -> bool:
    """Whether a body hands its condition on as it came, or has a constant one."""
    makers = {name: node for node in body.proto_.node for name in node.output}
    name = body.output_names[0]
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    return name == body.input_names[1] or (name in makers and makers[name].op_type == "Constant")


def _require_memory(steps: int, rows: Sequence[Any]) -> None:
    """Raise `ValueError` where no machine holds what this many steps collect."""
    size = sum(row.nbytes for row in rows if isinstance(row, np.ndarray))
    if steps * size > MOST_BYTES:
        raise ValueError(f"not enough memory for {steps} steps, each of which keeps {size} bytes")


class Scan(_Control):
    """Runs its body once per element of an axis of every scanned input."""

    body: ReferenceEvaluator
    num_scan_inputs: int
    scan_input_axes: list[int] | None
    scan_input_directions: list[int] | None
    scan_output_axes: list[int] | None
    scan_output_directions: list[int] | None

    def _run(self, *inputs: Any, context: Any = None, **_: Any) -> tuple[Any, ...]:
        if self.version < 9:
            return self._batch(*inputs, context=context)
        count = self.num_scan_inputs
        states, scanned = list(inputs[:-count]), inputs[-count:]
        axes = self.scan_input_axes or [0] * count
        backward = self.scan_input_directions or [0] * count
        moved = [np.moveaxis(x, axis, 0) for x, axis in zip(scanned, axes, strict=True)]
        moved = [x[::-1] if back else x for x, back in zip(moved, backward, strict=True)]
        states, stacked = self._scan(context, states, moved)
        axes = self.scan_output_axes or [0] * len(stacked)
        backward = self.scan_output_directions or [0] * len(stacked)
        stacked = [y[::-1] if back else y for y, back in zip(stacked, backward, strict=True)]
        outputs = [np.moveaxis(y, 0, axis) for y, axis in zip(stacked, axes, strict=True)]
        return (*states, *outputs)

    def _batch(self, lengths: Array | None, *inputs: Any, context: Any) -> tuple[Any, ...]:
        """Version 8: a batch axis in front of all values, and a length for each member.

        Scan outputs of a member end with zeros after its length.
        """
        count = self.num_scan_inputs
        states, scanned = inputs[:-count], inputs[-count:]
        longest = scanned[0].shape[1]
        backward = getattr(self, "directions", None) or [0] * count
        members = []
        for i in range(scanned[0].shape[0]):
            length = longest if lengths is None else int(lengths[i])
            own = [x[i, :length] for x in scanned]
            own = [x[::-1] if back else x for x, back in zip(own, backward, strict=True)]
            final, stacked = self._scan(context, [s[i] for s in states], own)
            padding = [np.zeros((longest - length, *y.shape[1:]), y.dtype) for y in stacked]
            padded = [np.concatenate(pair) for pair in zip(stacked, padding, strict=True)]
            members.append([*final, *padded])
        return tuple(np.stack(values) for values in zip(*members, strict=True))

    def _scan(
        self, context: Any, states: Values, scanned: Sequence[Array]
    ) -> tuple[Values, list[Array]]:
        """Final states, and the stacked outputs of all steps along axis 0 of `scanned`."""
        (length,) = {len(x) for x in scanned}
        collected: list[Values] = [[] for _ in self.body.output_names[len(states) :]]
        for t in range(length):
            elements = [np.asarray(x[t]) for x in scanned]
            results = self._step(self.body, context, [*states, *elements])
            for rows, row in zip(collected, results[len(states) :], strict=True):
                rows.append(row)
            states = results[: len(states)]
        if length:
            return states, [np.stack(rows) for rows in collected]
        # A step on zeros tells which shape the missing rows have.
        zeros = [np.zeros(x.shape[1:], x.dtype) for x in scanned]
        rows = self._step(self.body, context, [*states, *zeros])[len(states) :]
        return states, [np.empty((0, *row.shape), row.dtype) for row in rows]


class Optional(_Kernel):
    """The value itself, or None for an empty optional."""

    def _run(self, value: Any = None, **_: Any) -> tuple[Any]:
        return (value,)


class Identity(_Kernel):
    """A copy of the value."""

    def _run(self, value: Any) -> tuple[Any]:
        return (None if value is None else value.copy(),)


class Scatter(_Kernel):
    """Writes updates to the places that indices name along an axis."""

    def _run(self, data: Array, indices: Array, updates: Array, axis: int = 0) -> tuple[Array]:
        return (scatter_elements(data, indices, updates, axis=axis),)  # type: ignore[no-untyped-call]


class ZipMap(_Kernel):
    """A dict for each row: its elements by the class they belong to."""

    op_domain = "ai.onnx.ml"
    classlabels_int64s: list[int] | None
    classlabels_strings: list[str] | None

    def _run(self, x: Array, **_: Any) -> tuple[list[dict[int | str, float]]]:
        return (map_maker(self.classlabels_strings or self.classlabels_int64s or [])(x),)


class BatchNormalization(_Kernel):
    """Normalisation with given statistics or, in training, with those of the input."""

    epsilon: float
    momentum: float
    training_mode: int

    def _run(
        self, x: Array, scale: Array, bias: Array, mean: Array, var: Array, **attributes: Any
    ) -> tuple[Array, ...]:
        if not attributes.get("spatial", 1):
            raise ValueError("attribute 'spatial' = 0 is not supported")
        if self.version >= 14:
            training = bool(self.training_mode)
        else:
            training = len(self.onnx_node.output) > 1
            training |= self.version < 7 and not attributes.get("is_test", 0)
        if not training:
            return (_batchnorm_test_mode(x, scale, bias, mean, var, self.epsilon),)
        y, *saved, mean, var = _batchnorm_training_mode(
            x, scale, bias, mean, var, self.momentum, self.epsilon
        )
        return (y, mean, var) if self.version >= 14 else (y, mean, var, *saved)


class Slice(_Kernel):
    """Every `step`-th element of some axes, from `start` to before `end`."""

    starts: list[int] | None
    ends: list[int] | None
    axes: list[int] | None

    def _run(self, x: Array, *operands: Any, **attributes: Any) -> tuple[Array]:
        if self.version < 10:
            operands = tuple(attributes.get(name) for name in ("starts", "ends", "axes"))
        starts, ends, axes, steps = (*operands, None, None)[:4]
        axes = range(len(starts)) if axes is None else axes
        steps = [1] * len(starts) if steps is None else steps
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            taken = slice_range(int(start), int(end), int(step), x.shape[int(axis)])
            x = x.take(taken, int(axis))
        return (x,)


class Dropout(_Kernel):
    """The value itself; refused in training, where compiled code draws the numbers."""

    is_test: int

    def _run(
        self, x: Array, ratio: Any = None, training: Any = None, **_: Any
    ) -> tuple[Array, ...]:
        if (self.version < 7 and not self.is_test) or (training is not None and training.any()):
            raise ValueError("training mode has no reference kernel")
        mask = np.ones(x.shape, bool if self.version >= 10 else x.dtype)
        return (x.copy(), mask)[: len(self.onnx_node.output)]


class OneHot(_Kernel):
    """A new axis with one value where an index says, and another one elsewhere; of strings, too."""

    axis: int

    def _run(self, indices: Array, depth: Array, values: Array, **_: Any) -> tuple[Array]:
        count = int(np.asarray(depth).item())
        wanted = np.expand_dims(np.asarray(indices).astype(np.int64), self.axis)
        wanted = np.where(wanted < 0, wanted + count, wanted)
        places = np.arange(count).reshape([-1 if i == self.axis % wanted.ndim else 1
                                           for i in range(wanted.ndim)])  # fmt: skip
        return (np.where(wanted == places, values[1], values[0]),)


class LogSoftmax(_Kernel):
    """Logarithms of Softmax; of what is too small for Softmax, too."""

    axis: int

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        if x.size == 0:
            return (x,)
        shifted = x - x.max(self.axis, keepdims=True)
        return ((shifted - np.log(np.exp(shifted).sum(self.axis, keepdims=True))).astype(x.dtype),)


class Unique(_Kernel):
    """The different elements, or slices along an axis; of strings, too."""

    axis: int | None
    sorted: int

    def _run(self, x: Array, **_: Any) -> tuple[Array, ...]:
        # Slices are compared element by element, in the order of memory.
        slices = x.reshape(-1, 1) if self.axis is None else np.moveaxis(x, self.axis, 0)
        rows = [tuple(part.reshape(-1).tolist()) for part in slices]
        first: dict[tuple[Any, ...], int] = {}
        for place, row in enumerate(rows):
            first.setdefault(row, place)
        order = sorted(first) if self.sorted else list(first)
        places = np.array([first[row] for row in order], np.int64)
        numbers = {row: number for number, row in enumerate(order)}
        inverse = np.array([numbers[row] for row in rows], np.int64)
        counts = np.bincount(inverse, minlength=len(order)).astype(np.int64)
        taken = x.reshape(-1)[places] if self.axis is None else x.take(places, self.axis)
        return (taken, places, inverse, counts)[: len(self.onnx_node.output)]


class StringNormalizer(_Kernel):
    """Strings without stop words, in upper or lower case."""

    case_change_action: str
    is_case_sensitive: int
    stopwords: list[str] | None

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        if x.ndim > 2 or (x.ndim == 2 and len(x) != 1):
            raise ValueError(f"an input of shape {x.shape}, expected [C] or [1, C]")
        stop = {self._key(word) for word in self.stopwords or ()}
        kept = [word for word in x.reshape(-1) if self._key(word) not in stop]
        if self.case_change_action != "NONE":
            upper = self.case_change_action == "UPPER"
            kept = [word.upper() if upper else word.lower() for word in kept]
        words = kept or [""]
        return (np.array(words, object).reshape((1,) * (x.ndim - 1) + (-1,)),)

    def _key(self, word: str) -> str:
        return word if self.is_case_sensitive else word.lower()


class StringSplit(_StringSplit):
    """Pieces of strings; none of an empty one."""

    def _run(
        self, x: Array, delimiter: str | None = None, maxsplit: int | None = None
    ) -> tuple[Array, Array]:
        most = -1 if maxsplit is None else maxsplit
        pieces = [text.split(delimiter or None, most) if text else [] for text in x.reshape(-1)]
        counts = np.array([len(row) for row in pieces], np.int64)
        longest = counts.max(initial=0)
        rows = [row + [""] * (longest - len(row)) for row in pieces]
        result = np.array(rows, object).reshape(*x.shape, longest)
        return result, counts.reshape(x.shape)


class TfIdfVectorizer(_TfIdfVectorizer):
    """Counts of sequences; without weights each weighs 1."""

    def __init__(self, onnx_node: Any, run_params: Any) -> None:
        if not any(item.name == "weights" for item in onnx_node.attribute):
            (places,) = (a.ints for a in onnx_node.attribute if a.name == "ngram_indexes")
            node = onnx.NodeProto()
            node.CopyFrom(onnx_node)
            node.attribute.append(onnx.helper.make_attribute("weights", [1.0] * len(places)))
            onnx_node = node
        super().__init__(onnx_node, run_params)  # type: ignore[no-untyped-call]

    def _run(self, *inputs: Any, **attributes: Any) -> Any:
        """No two tokens of a row are further apart than the row is long."""
        most = inputs[0].shape[-1] if inputs[0].ndim else 0
        attributes["max_skip_count"] = min(attributes.get("max_skip_count") or 0, most)
        return super()._run(*inputs, **attributes)  # type: ignore[no-untyped-call]


class STFT(_STFT):
    """Transforms of frames; of a real signal without an axis of parts, too."""

    def _run(self, x: Array, *operands: Any, **attributes: Any) -> Any:
        x = x[..., np.newaxis] if x.ndim == 2 else x
        return super()._run(x, *operands, **attributes)  # type: ignore[no-untyped-call]


class SequenceInsert(_Kernel):
    """The sequence with one more tensor before a position, by default behind the last one."""

    def _run(self, sequence: Values, tensor: Array, position: Array | None = None) -> Any:
        count = len(sequence)
        place = count if position is None else int(np.reshape(position, ()))
        if not -count <= place <= count:
            raise IndexError(f"position {place} is out of range: {-count} to {count} are valid")
        place += count if place < 0 else 0
        return ([*sequence[:place], tensor, *sequence[place:]],)


class _Refused(_Kernel):
    reason = "the one there ignores attributes; enable recurrent_to_scan"

    def __init__(self, onnx_node: Any, run_params: Any) -> None:
        raise NotImplementedError(self.reason)

    def _run(self, *_: Any, **__: Any) -> tuple[Any, ...]:
        raise NotImplementedError


class _Native(_Refused):
    reason = "the one there gives other results; compiled code only"


class MaxPool(_MaxPool):
    """The maximum below each position of a window; its indices have native code only."""

    def __init__(self, onnx_node: Any, run_params: Any) -> None:
        if len(onnx_node.output) > 1 and onnx_node.output[1]:
            raise NotImplementedError("indices have no reference kernel")
        super().__init__(onnx_node, run_params)


class ConvTranspose(_ConvTranspose):
    """Transposed convolution, group by group; where the shape is given, it says the pads."""

    def _run(self, *inputs: Any, **attributes: Any) -> Any:
        count = attributes.pop("group", None) or 1
        x, weight, bias = (*inputs, None)[:3]
        if attributes.get("output_shape"):
            attributes["pads"] = _fitting_pads(x.shape[2:], weight.shape[2:], attributes)
        biases = [None] * count if bias is None else np.split(bias, count)
        groups = zip(np.split(x, count, 1), np.split(weight, count), biases, strict=True)
        run: Any = super()._run
        return (np.concatenate([run(*group, group=1, **attributes)[0] for group in groups], 1),)


def _fitting_pads(
    sizes: Sequence[int], kernel: Sequence[int], attributes: Mapping[str, Any]
) -> list[int]:
    """The crops of a transposed convolution with the attribute `output_shape`."""
    ones = np.ones(len(sizes), np.int64)
    strides, dilations = (attributes.get(name) or ones for name in ("strides", "dilations"))
    whole = (np.array(sizes) - 1) * strides + (np.array(kernel) - 1) * dilations + 1
    whole += np.array(attributes.get("output_padding") or 0 * ones)
    total = np.maximum(0, whole - attributes["output_shape"])
    parts = (total // 2).tolist(), (total - total // 2).tolist()
    less, more = parts if attributes.get("auto_pad") == "SAME_UPPER" else parts[::-1]
    return [*less, *more]


class ConvInteger(_ConvInteger):
    """Convolution of integers, whose filters may each have a zero point."""

    def _run(self, *inputs: Any, **attributes: Any) -> Any:
        x, weight, *points = inputs
        if len(points) > 1 and points[1] is not None:
            point = points.pop().astype(np.int32)
            weight = weight - point.reshape(-1, *[1] * (weight.ndim - 1))
        run: Any = super()._run
        return run(x, weight, *points, **attributes)


class Resize(_Resize):
    """Interpolation along axes that may be counted from the end."""

    def _run(self, *inputs: Any, **attributes: Any) -> Any:
        axes = attributes.pop("axes", None)
        named = None if axes is None else [axis % inputs[0].ndim for axis in axes]
        run: Any = super()._run
        return run(*inputs, axes=named, **attributes)


class _Random(_Refused):
    reason = "random numbers are drawn by compiled code only"


def _refused(base: type[_Refused], *names: str) -> list[type[OpRun]]:
    """Kernels that refuse to be made."""
    return [type(name, (base,), {"__doc__": "Refused."}) for name in names]


KERNELS: list[type[OpRun]] = [
    Slice,
    If,
    Loop,
    Scan,
    Optional,
    Identity,
    *MOVES,
    Scatter,
    ZipMap,
    BatchNormalization,
    Dropout,
    OneHot,
    LogSoftmax,
    Unique,
    StringNormalizer,
    StringSplit,
    TfIdfVectorizer,
    STFT,
    SequenceInsert,
    *ML_KERNELS,
    *_refused(_Refused, "RNN", "GRU", "LSTM"),
    MaxPool,
    ConvTranspose,
    ConvInteger,
    Resize,
    *_refused(_Native, "GridSample", "MaxUnpool"),
    # Dropout has a kernel, as it draws in training only.
    *_refused(_Random, *(name for name, of in FACTS.items() if of.random and name != "Dropout")),
]

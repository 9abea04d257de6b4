"""Counts of the n-grams of a pool in sequences of tokens."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Tensor, Value, slice_axis
from ostinato.program.expr import Expr, cast, select
from ostinato.sizes.dims import maximum

# There is a kernel for each distance of tokens.
_MOST_SKIPS = 32
_MOST_COLUMNS = 2**16


@lowers("TfIdfVectorizer")
def lower_tf_idf(context: Context) -> Value:
    """Count the n-grams of a pool, whose tokens may be up to `max_skip_count` apart.

    tokens: int32 or int64 [L] or [N, L]; result: float32 [C] or [N, C], where n-gram `i` of the
    pool has column `ngram_indexes[i]`. Counts, times weights, or weights of those that occur
    (modes TF, TFIDF, IDF).
    """
    builder, attributes = context.builder, context.attributes
    tokens = builder.strided(context.input(0))
    places = np.array(attributes.ints("ngram_indexes"))
    weights = np.array(attributes.floats("weights", (1.0,) * len(places)), np.float32)
    mode = attributes.string("mode")
    if len(np.unique(places)) != len(places):
        raise context.refuse("n-grams that share a column have no native form")
    pool = list(_pool(context))
    known = sum(len(grams) for _, grams in pool)
    if known != len(places) or len(weights) != known or (places < 0).any():
        raise context.invalid(f"{known} n-grams have {len(places)} places, {len(weights)} weights")
    lengths = range(attributes.int("min_gram_length"), attributes.int("max_gram_length") + 1)
    columns = int(places.max(initial=-1)) + 1
    shape = (*tokens.shape[:-1], columns)
    if columns > _MOST_COLUMNS:
        raise context.refuse(f"{columns} columns have no native form")
    total: Value = builder.constant(np.zeros((1,) * len(shape), np.int32))
    skips = attributes.int("max_skip_count")
    if not 0 <= skips <= _MOST_SKIPS or mode not in ("TF", "IDF", "TFIDF"):
        raise context.refuse(f"max_skip_count {skips} and mode {mode!r} have no native form")
    for first, grams in pool:
        if grams.shape[1] not in lengths or not len(grams):
            continue
        # Columns of n-grams of another length look for the first one, and are masked.
        table = np.repeat(grams[:1], columns, axis=0)
        chosen = places[first : first + len(grams)]
        table[chosen] = grams
        mask = np.isin(np.arange(columns), chosen)
        for distance in range(1, skips + 2 if grams.shape[1] > 1 else 2):
            found = _occurrences(context, tokens, table, distance)
            total = builder.pointwise(_added, total, found, builder.constant(mask))
    scale = np.zeros(columns, np.float32)
    scale[places] = weights
    if mode == "IDF":
        return builder.pointwise(_where_found, total, builder.constant(scale))
    total = builder.expanded(builder.pointwise(lambda n: cast(n, "float32"), total), shape)
    if mode == "TF":
        return total
    return builder.pointwise(lambda n, w: n * w, total, builder.constant(scale))


def _pool(context: Context) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The n-grams of each length: the number of the first, and all, one per row."""
    attributes = context.attributes
    pool = np.array(attributes.ints("pool_int64s"), np.int64)
    starts = (*attributes.ints("ngram_counts"), len(pool))
    first = 0
    for length, (start, end) in enumerate(itertools.pairwise(starts), 1):
        if not 0 <= start <= end <= len(pool) or (end - start) % length:
            raise context.invalid(f"ngram_counts {starts[:-1]} do not divide the pool")
        grams = pool[start:end].reshape(-1, length)
        yield first, grams
        first += len(grams)


def _occurrences(
    context: Context, tokens: Tensor, table: NDArray[np.int64], distance: int
) -> Tensor:
    """int32 [.., C]: how often each row of the table occurs, its tokens `distance` apart."""
    builder, last = context.builder, len(tokens.shape) - 1
    columns, length = table.shape
    count = maximum(tokens.shape[last] - (length - 1) * distance, 0)
    shape = (*tokens.shape[:last], columns)
    outer, start = builder.axes(shape), builder.axis(count, "r")
    equal: list[Expr] = []
    for k in range(length):
        window = slice_axis(tokens, last, k * distance, 1, count)
        token = cast(builder.load(window, (*outer[:last], start)), "int64")
        wanted = builder.load(builder.constant(table[:, k].copy()), outer[last:])
        equal.append(token.equals(wanted))
    element = cast(reduce(lambda a, b: a & b, equal), "int32")
    return builder.fold(shape, outer, [start], "sum", element)


def _added(total: Expr, found: Expr, counts: Expr) -> Expr:
    return total + select(counts, found, 0)


def _where_found(count: Expr, weight: Expr) -> Expr:
    return select(count > 0, weight, 0)

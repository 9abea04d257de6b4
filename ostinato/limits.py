"""Limits to what a model may ask for, checked before any of it is begun."""

from __future__ import annotations

# Bytes of a value. No machine has more.
MOST_BYTES = 2**40
# Bytes of a value that is computed while compiling; a kernel computes what is larger, unless its
# elements are in the file.
MOST_KNOWN_BYTES = 2**24
# Sizes that one value is made of; a kernel stores what is longer.
MOST_SIZES = 2**10
# Bytes of all values together that are computed while compiling one program.
MOST_CONSTANT_BYTES = 2**30
# Steps that computing what follows from constants may take while compiling; each run computes what
# takes more. A core runs as many in a few seconds.
MOST_EVALUATED_STEPS = 2**33
# Elements of a table of zeros or counts that a pass stores in the model; of more, nodes make it.
MOST_STORED = 2**20
# Steps of one kernel, or of one loop, in one run: multiply-adds of a product, elements of a window.
# A core that does nothing else takes some hours for as many.
MOST_STEPS = 2**50
# The trip count of a loop that only its condition ends.
ENDLESS = 2**62
# Elements of a window along one axis that are data, padding or nothing. Weights are not meant.
MOST_WINDOW = 2**27
# Nodes of a model whose calls of functions are written out. Exporters write some ten thousand.
MOST_NODES = 2**20
# Axes of a value; NumPy's arrays have no more.
MOST_AXES = 64

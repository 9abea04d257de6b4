"""Rules of arithmetic that the bits of results depend on; `docs/numerics.md` explains them."""

from __future__ import annotations

# A reduction along rows keeps this many partial results, so that lanes can run along its axis.
ROW_CHAINS = 32

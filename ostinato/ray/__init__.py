"""Ostinato on Ray: corpora by Ray Data, sequences by Ray Serve. Needs `ostinato[ray]`.

Predictor    for `Dataset.map_batches`: rows in, rows out
application  for `ray.serve.run`: a sequence stays with the replica that has its state
"""

from ostinato.ray.predictor import Predictor

__all__ = ["Predictor", "application"]


def __getattr__(name: str) -> object:
    # Ray Serve takes seconds to import, which those who score corpora need not wait for.
    if name == "application":
        from ostinato.ray.serving import application

        return application
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

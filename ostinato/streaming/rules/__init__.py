"""Rules for streams, one file per family of operators. The import registers all of them."""

from ostinato.graph.rules import load_rules

load_rules(__name__, __path__)

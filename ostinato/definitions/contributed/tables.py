"""The definitions by operator, a table for each domain."""

from __future__ import annotations

from ostinato.definitions.contributed.call import Definition
from ostinato.graph.rules import Rules
from ostinato.model.contributed import BLOCKED, MICROSOFT

microsoft: Rules[Definition] = Rules("definition")
blocked: Rules[Definition] = Rules("definition")
# Versions of operators of the standard's domain that only onnxruntime has.
standard: Rules[Definition] = Rules("definition")

TABLES = {MICROSOFT: microsoft, BLOCKED: blocked, "": standard}

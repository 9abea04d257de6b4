"""The definitions by operator."""

from __future__ import annotations

from ostinato.definitions.contributed.call import Definition
from ostinato.graph.rules import Rules

DOMAIN = "ai.onnx.ml"

ml: Rules[Definition] = Rules("definition")

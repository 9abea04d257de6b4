"""Streaming: what a model carries from step to step, and models made to carry it."""

from ostinato.streaming.convert import convert
from ostinato.streaming.result import Conversion, ConversionError, Note, OutputTiming, State
from ostinato.streaming.suggested_states import Suggestion, find_states

__all__ = [
    "Conversion",
    "ConversionError",
    "Note",
    "OutputTiming",
    "State",
    "Suggestion",
    "convert",
    "find_states",
]

"""The text of the functions by which threads meet; `codegen/threads.py` says what they do."""

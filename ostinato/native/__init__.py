"""Calls from Python into compiled code, and what they need: memory, threads, checks, the cache."""

"""Runs compiled models: sessions, bound calls, the call trampoline, the cache, fallback kernels."""

"""Ops that the standard defines as functions of others."""

"""Indexed reading and writing as their documents define it."""

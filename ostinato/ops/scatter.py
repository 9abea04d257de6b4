"""Writing at computed places."""

"""Passes that spell every model in one way: functions, recurrences, constants."""

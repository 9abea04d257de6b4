"""Facts about machines: one record, which schedule and code generation ask."""

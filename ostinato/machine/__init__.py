"""What schedule and code generation know of a machine: one record, which everything else asks."""

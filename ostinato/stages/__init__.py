"""Cut a model into stages, guard what was specialised, fall back where a guard or kernel fails."""

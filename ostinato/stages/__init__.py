"""Stages: how a model that is not one native program for all sizes runs, and what decides it.

Cut:  `partition` cuts a model into native segments and nodes apart, `shape_operands` finds the
      values whose elements a segment takes as sizes, `handover` passes values on.
Data: `stage`, which the cache keeps by `packed`: of a model, of a program with any weights
      (`stored_programs`), and of a file with any weights (`checkpoints`); `constants`
      writes what weights become.
Run:  `flow` runs the stages; where a *guard* fails, the general program in place of the specialised
      one (*deoptimisation*). `specialized` compiles a node for the key of its operands when it is
      called (*specialisation*), `fallback` runs it on its reference kernel.
Tell: `report`, `notice`.

docs/design.md has a picture. What runs stages imports onnx and onnx_ir only once it needs them.
"""

"""The cases of the suite that do not pass, each with its reason. Everything else must pass."""

from __future__ import annotations

# Names without the suffix "_cpu". These cannot be decided by comparing with the expected output.
SKIPPED: dict[str, str] = {
    **dict.fromkeys(
        (
            "test_bernoulli",
            "test_bernoulli_double",
            "test_bernoulli_double_expanded",
            "test_bernoulli_expanded",
            "test_bernoulli_seed",
            "test_bernoulli_seed_expanded",
        ),
        "the expected output is one draw of random numbers",
    ),
}

# These fail for a reason that may go away; one that passes makes the run fail, so that it is seen.
EXPECTED_FAILURES: dict[str, str] = {
    "test_attention_4d_causal_fp16_expanded": (
        "2 of 192 results differ by a unit in the last place of float16, more than the tolerance; "
        "the expected output comes from NumPy, which rounds inside of a matrix product"
    ),
    **dict.fromkeys(
        ("test_gradient_of_add", "test_gradient_of_add_and_mul"),
        "Gradient of ai.onnx.preview.training has neither a lowering nor a reference kernel",
    ),
    "test_loop16_seq_none": "the suite cannot compare sequences of scalars: it asks for their len()",
}

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
            "test_training_dropout",
            "test_training_dropout_default",
            "test_training_dropout_default_mask",
            "test_training_dropout_mask",
        ),
        "the expected output is one draw of random numbers",
    ),
}

# These fail for a reason that may go away; one that passes makes the run fail, so that it is seen.
EXPECTED_FAILURES: dict[str, str] = {
    "test_attention_4d_causal_fp16_expanded": (
        "2 of 192 results are off by one unit in the last place of float16, which is more than "
        "the tolerance; the exact results are nearer to them than to the expected ones"
    ),
    "test_maxunpool_export_with_output_shape": (
        "the indices of the case count over another shape than that of the output; here they count "
        "over the output, as those of MaxPool do and as onnxruntime has it"
    ),
    "test_loop16_seq_none": "the suite asks for the len() of scalars in a sequence",
}

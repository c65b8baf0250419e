"""Benchmarks: ratios measured side by side, interleaved, in one run."""

"""Block-wise decoding: left to right in blocks, sliding windows, and approximate caches."""

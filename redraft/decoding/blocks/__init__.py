"""Block-wise decoding: left to right in blocks, windows, strides and approximate caches."""

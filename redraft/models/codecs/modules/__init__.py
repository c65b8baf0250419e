"""Modules of codecs: encoders, decoders, resamplers, standardization and corruption."""

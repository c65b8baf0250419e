"""Building blocks of codecs: encoders, decoders, resamplers, corruption."""

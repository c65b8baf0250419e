"""Auxiliary networks beside the denoiser: error head, attribute classifier, tagger, drafter."""

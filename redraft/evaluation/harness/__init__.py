"""The harness: any model of ours under lm-eval, log-likelihoods as bounds with their error or exact."""

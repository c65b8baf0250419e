"""Hardware: what this machine grants, which instructions work, and the precision that is faster."""

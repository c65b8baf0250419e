"""Laws: processes and samplers checked against exact results on small toy problems."""

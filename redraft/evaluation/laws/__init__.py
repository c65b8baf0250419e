"""Laws: every process and sampler held to exact enumeration on toys."""

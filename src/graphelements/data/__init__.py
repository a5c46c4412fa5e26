"""Makes or reads sampled functions; never sees the network."""

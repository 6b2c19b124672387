"""What computes weights and images of them: the GPU, numpy, or a look-up in weights that were given."""

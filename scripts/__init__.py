"""Setting up, building, serving and checking py-attn. Only the standard library is used here."""

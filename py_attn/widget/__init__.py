"""The notebook widget (needs the extra: ``pip install py-attn[widget]``)."""

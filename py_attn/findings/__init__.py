"""What attention heads do: labels with scores, and groups of heads that are alike, from weights in numpy.

``pa.findings.head_labels(weights, tokens)`` tells which heads attend to the previous token, to punctuation
and so on; docs/findings.md has the definitions.
"""

from py_attn.findings.labels import LABELS, Label, shown
from py_attn.findings.likeness import head_distances, head_groups
from py_attn.findings.scores import HeadScores, head_labels, head_scores

__all__ = [
    "LABELS",
    "HeadScores",
    "Label",
    "head_distances",
    "head_groups",
    "head_labels",
    "head_scores",
    "shown",
]

"""What is looked at: a sentence, synthetic input, given arrays, or a file; and who may see whom."""

"""What is looked at: a sentence, synthetic input, arrays, or a file; and which keys a query may see."""

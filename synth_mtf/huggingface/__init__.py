"""Models of a run in Hugging Face's format, and back."""

"""Names, shapes and a request → a plan: which tensors change, how, and on what evidence."""

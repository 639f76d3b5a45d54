"""Files made to harm: nothing in them runs, and they cost little."""

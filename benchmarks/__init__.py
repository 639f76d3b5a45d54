"""What a conversion costs, measured against `cp` and against what people do today."""

"""How often the verdict is right: tables with what damage costs them, counts, and plots."""

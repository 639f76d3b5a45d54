"""The command line: `app` starts it, each command has a module, rendering lies beside them."""

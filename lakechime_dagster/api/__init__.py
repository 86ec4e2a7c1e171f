"""What other programs are told over HTTP."""

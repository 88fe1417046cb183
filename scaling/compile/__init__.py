"""`scaling compile`: what a training step needs and costs on hardware that need not be here."""

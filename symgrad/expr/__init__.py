"""The mathematics: expressions, their derivatives and simplification."""

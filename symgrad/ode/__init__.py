"""Differential equations: methods of Runge and Kutta, of Rosenbrock, and `solve_ivp` with them."""

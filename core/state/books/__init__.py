"""Books all amounts in one module, and checks them in another one that computes every amount again from scratch."""

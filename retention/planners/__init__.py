"""Planning, one operation a module: what a pass, a request or an estimate looks at, and the plan that it makes."""

"""Events → screen. Each way of showing them is one small file; none of them decides anything."""

"""The order of the steps of `up` and `down`, and the one rule of cleaning up."""

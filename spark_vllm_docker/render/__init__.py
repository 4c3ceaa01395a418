"""Pure: `Recipe` → `ContainerSpec` → text or docker-py keyword arguments. Nothing here does I/O
except reading the templates of `launch/`.
"""

"""Pictures, sound and video: what a file is, how it is asked about, how a long one is cut."""

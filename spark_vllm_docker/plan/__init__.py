"""What can be known before anything starts. Pure: values in, findings out."""

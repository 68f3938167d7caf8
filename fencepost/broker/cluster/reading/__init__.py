"""What a broker reads from the stores of a cluster, and keeps."""

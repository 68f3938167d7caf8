"""What Spark's reused Python workers keep between tasks."""

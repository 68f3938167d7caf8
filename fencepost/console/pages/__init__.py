"""The pages of the console: each makes the values of a template from the answers of brokers."""

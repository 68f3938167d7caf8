"""The project's own load tool: broker CPU per record, acknowledgements and transactions a second, start-up, memory."""

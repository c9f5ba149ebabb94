"""Live Iggy servers: connections, and the topics that they hold."""

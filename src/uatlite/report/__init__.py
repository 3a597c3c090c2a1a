"""What was found, for people: tables for a terminal, Markdown, CSV and JSON."""

"""What was found, for people: tables, charts and pages."""

"""Tables: reading, public schema, encoding."""

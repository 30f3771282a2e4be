"""What makes the pages, and runs this checkout elsewhere."""

"""report.html: the page in every release folder."""

"""What pages look like, whatever they tell: one HTML file with its scripts and styles inside, and charts as SVG."""

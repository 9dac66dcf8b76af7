"""What can be configured, how it is loaded and checked, and what a reload may change."""

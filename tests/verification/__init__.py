"""What takes minutes to hours, and proves what seldom breaks; ARCHITECTURE says what CI runs."""

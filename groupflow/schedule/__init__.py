"""Work that nobody publishes: tasks that come by themselves, once each time that they are due."""

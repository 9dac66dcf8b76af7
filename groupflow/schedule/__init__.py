"""Work without a message: tasks that come by themselves, once each time that they are due."""

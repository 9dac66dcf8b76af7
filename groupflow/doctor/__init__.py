"""Is what groupflow stands on fit for it: each server as its user sees it, and what to do."""

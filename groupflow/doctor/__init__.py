"""Whether groupflow's servers are fit for it: each as its user sees it, and what to do."""

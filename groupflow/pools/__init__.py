"""Tasks for workers that pull: claims over HTTP, and how their results are settled."""

"""Load on a live server, and what its clients saw: `realtime-server bench`. The benchmarks stand on these modules."""

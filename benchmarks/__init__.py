"""What the server costs, and how fast its text is, on the machine at hand: python -m benchmarks -h"""

"""What shows whether it works: training, evaluation, reports, the paper's tables, benchmarks and the demo."""

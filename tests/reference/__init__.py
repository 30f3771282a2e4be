"""Facts typed independently of the package's tables, and the files recorded from GPUs."""

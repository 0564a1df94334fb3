"""What one job passes through: the files and functions of the project that it calls, in every Python process."""

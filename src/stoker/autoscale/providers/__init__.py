"""What workers are made of: processes of this machine, or containers of a Docker engine."""

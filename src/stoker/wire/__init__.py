"""What coordinators and workers say to each other: types and codecs, no I/O."""

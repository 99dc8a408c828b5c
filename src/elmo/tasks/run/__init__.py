"""Training and using a head: loop, snapshots, folder."""

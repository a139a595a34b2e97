"""An attack on all surfaces of cfnade that anyone can rerun: `make campaign`."""

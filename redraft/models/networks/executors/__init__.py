"""Ways to run the layers of a network, chosen by name: `Dense`, `Row`, `Packed`."""

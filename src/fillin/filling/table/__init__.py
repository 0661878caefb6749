"""Tables without an order: every blank cell from the other cells of its row, and from rows that are like it."""

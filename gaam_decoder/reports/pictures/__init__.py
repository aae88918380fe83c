"""Which pictures a report has, and the words that go with them."""

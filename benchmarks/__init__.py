"""What is measured, against whom, by one command each."""

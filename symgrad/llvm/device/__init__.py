"""The CPU: its vectors and threads, and machine code that is kept, or compiled again."""

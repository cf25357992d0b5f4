"""The storage buffers of a device, and how bytes and work go to it and come back."""

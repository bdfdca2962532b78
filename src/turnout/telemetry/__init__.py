"""What the server tells about itself: phases of requests, metrics."""
